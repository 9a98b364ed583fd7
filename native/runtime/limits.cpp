#include "runtime/limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <vector>

#include "contract/tables.h"
#include "layers/linear.h"
#include "layers/pack.h"
#include "runtime/arena.h"
#include "runtime/parallel.h"

namespace octavo {
namespace {

constexpr int kTurns = 25;
constexpr double kTurn = 5e-5;  // seconds that a turn lasts at least: the clock is read once in each

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds of one call, of the fastest turn.
template <class Call>
double fastest(Call call) {
  call();
  std::size_t calls = 1;
  double best = std::numeric_limits<double>::infinity();
  for (int turn = 0; turn < kTurns; ++turn) {
    const double start = now();
    for (std::size_t i = 0; i < calls; ++i) call();
    const double spent = now() - start;
    if (spent < kTurn) {
      calls *= 2;
      --turn;
    } else {
      best = std::min(best, spent / static_cast<double>(calls));
    }
  }
  return best;
}

// Floats between -1 and 1 that are no pattern.
void fill(float* x, std::size_t n) {
  std::uint32_t state = 1;
  for (std::size_t i = 0; i < n; ++i) {
    state = state * 1664525u + 1013904223u;
    x[i] = static_cast<float>(state >> 8) / static_cast<float>(1 << 23) - 1.0f;
  }
}

float* floats(Buffer& buffer, std::size_t n) {
  auto* x = reinterpret_cast<float*>(buffer.need(n * sizeof(float)));
  fill(x, n);
  return x;
}

double rows_seconds(std::size_t rows, std::size_t k) {
  const KernelTable& t = table();
  Buffer inputs, panels, quants;
  const float* x = floats(inputs, rows * k);
  std::uint8_t* panel = panels.need(round_up(rows, kPanelM) * round_up(k, kPanelK) * t.bytes_per_input);
  auto* quant = reinterpret_cast<RowQuant*>(quants.need(rows * sizeof(RowQuant)));
  return fastest([&] { t.quantize_rows({x, rows, k, k, 0, panel, quant, false}); });
}

// A product of k inputs, which are quantized already.
double product_seconds(std::size_t rows, std::size_t k, std::size_t n) {
  const KernelTable& t = table();
  Buffer weights, scales, inputs, panels, quants, outputs;
  auto* packed = reinterpret_cast<std::int8_t*>(weights.need(packed_bytes(n, k)));
  std::fill(packed, packed + packed_bytes(n, k), std::int8_t{1});
  const float* scale = floats(scales, n);
  const Linear layer({packed, WeightFormat::kInt8}, n, k, 0, scale, nullptr, scale, Activation::kNone);
  std::uint8_t* panel = panels.need(round_up(rows, kPanelM) * round_up(k, kPanelK) * t.bytes_per_input);
  auto* quant = reinterpret_cast<RowQuant*>(quants.need(rows * sizeof(RowQuant)));
  t.quantize_rows({floats(inputs, rows * k), rows, k, k, 0, panel, quant, false});
  Gemm g{};
  g.panel = panel;
  g.rows = rows;
  g.quant = quant;
  g.weight = layer.weight;
  g.block_end = layer.weight.blocks();
  g.bias = layer.bias;
  g.out = floats(outputs, rows * n);
  g.out_stride = n;
  return fastest([&] { t.gemm(g); });
}

// What a product over no inputs would take, from two short ones: their difference is of the inputs alone.
double outputs_seconds(std::size_t rows, std::size_t n) {
  const double one = product_seconds(rows, kPanelK, n), two = product_seconds(rows, 2 * kPanelK, n);
  return std::max(0.0, 2 * one - two);
}

double cells_seconds(Part part, std::size_t rows, std::size_t hidden) {
  const KernelTable& t = table();
  const std::size_t units = round_up(hidden, kBlockN), gates = part == Part::kLstmCells ? 4 : 3, wide = units * gates;
  Buffer product, input, state, memory, output;
  float *g = floats(product, rows * wide), *x = floats(input, rows * wide), *h = floats(state, rows * units),
        *c = floats(memory, rows * units), *y = floats(output, rows * hidden);
  const CellOutput out{rows, units, h, units, y, hidden, hidden};
  if (part == Part::kLstmCells) return fastest([&] { t.lstm_cell({out, g, wide, c, units, 0.0f, true}); });
  return fastest([&] { t.gru_cell({out, x, wide, g, wide, c, units, 0.0f, true}); });
}

}  // namespace

double peak_gops(const std::string& isa, double seconds, int threads) {
  const PeakLoop loop = peak_loop(isa);
  if (!loop.run) return 0.0;
  constexpr std::size_t kLoops = 20000;
  std::atomic<int> ran{0};
  auto turn = [&](int, int, int) {
    loop.run(kLoops);
    ran.fetch_add(1, std::memory_order_relaxed);
  };
  parallel(threads, 1, turn);
  const double start = now();
  double best = 0.0, last = start;
  while (last - start < seconds) {
    ran.store(0, std::memory_order_relaxed);
    parallel(threads, 1, turn);
    const double end = now(), rate = loop.operations * kLoops * ran.load(std::memory_order_relaxed) / (end - last) / 1e9;
    best = rate > best ? rate : best;
    last = end;
  }
  return best;
}

double read_gbps(const std::uint8_t* data, std::size_t bytes, int threads) {
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads) * 8);
  auto read = [&](int, int thread, int count) {
    const Share part = share(bytes, 64, thread, count);
    sums[static_cast<std::size_t>(thread) * 8] = table().read(data + part.begin, part.end - part.begin);
  };
  const double start = now();
  parallel(threads, 1, read);
  return static_cast<double>(bytes) / (now() - start) / 1e9;
}

double part_seconds(Part part, std::size_t rows, std::size_t columns) {
  const FloatMode mode;
  if (part == Part::kRows) return rows_seconds(rows, columns);
  if (part == Part::kOutputs) return outputs_seconds(rows, columns);
  return cells_seconds(part, rows, columns);
}

}  // namespace octavo
