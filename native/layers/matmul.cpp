#include "layers/matmul.h"

#include <algorithm>

#include "contract/tables.h"
#include "layers/linear.h"
#include "layers/pack.h"
#include "layers/work.h"
#include "runtime/arena.h"
#include "runtime/parallel.h"

namespace octavo {
namespace {

constexpr std::size_t kStepM = 32;              // rows of a kernel's largest tile
constexpr std::size_t kStepN = 4;               // blocks of its widest
constexpr std::size_t kPanelBytes = 256 << 10;  // quantized rows at a time: they stay in the L2 cache
constexpr std::size_t kTurned = 64;             // inputs of a transposed matrix at a time

struct MatMulScratch;

// One call, as its threads see it. Two phases: the matrices of b become packed weights, block by block;
// then rows of a are quantized and multiplied, some rows (and, of few rows, some columns) at a time.
struct Products {
  const KernelTable& t;
  const MatMul& of;
  std::size_t blocks, padded, block_bytes, matrix_bytes;   // of one matrix of b
  std::size_t rows, tiles, parts;                          // rows at a time; of one product
  std::size_t panel_stride;
  std::int8_t* packed = nullptr;
  float* scales = nullptr;
  std::int32_t* colsums = nullptr;
  std::uint8_t* thread_base = nullptr;
  std::size_t panels, quants, turned, per_thread;

  bool long_sums() const { return of.k > kChunkK; }

  void plan(int threads) {
    blocks = (of.n + kBlockN - 1) / kBlockN;
    padded = blocks * kBlockN;
    matrix_bytes = packed_bytes(of.n, of.k);
    block_bytes = matrix_bytes / blocks;
    panel_stride = round_up(of.k, kPanelK) * t.bytes_per_input;
    const auto wanted = static_cast<std::size_t>(threads);
    const std::size_t fit = std::max(kStepM, kPanelBytes / panel_stride / kStepM * kStepM);
    const std::size_t each = round_up((of.m * of.count + wanted - 1) / wanted, kStepM);
    rows = std::min({of.m, fit, each});
    tiles = (of.m + rows - 1) / rows;
    parts = std::max<std::size_t>(1, std::min((wanted + tiles * of.count - 1) / (tiles * of.count), blocks / kStepN));
    lay_out(wanted);
  }

  void lay_out(std::size_t threads) {
    Layout one;
    panels = one.add<std::uint8_t>(long_sums() ? 0 : round_up(rows, kPanelM) * panel_stride);
    quants = one.add<RowQuant>(round_up(rows, kPanelM));
    turned = one.add<float>(of.transposed ? kTurned * kBlockN : 0);
    per_thread = one.bytes();
    Layout layout;
    const std::size_t weights = layout.add<std::int8_t>(of.b_count * matrix_bytes);
    const std::size_t scale = layout.add<float>(of.b_count * padded), sum = layout.add<std::int32_t>(of.b_count * padded);
    const std::size_t thread = layout.add<std::uint8_t>(per_thread * threads);
    std::uint8_t* base = scratch<MatMulScratch>(layout.bytes());
    packed = reinterpret_cast<std::int8_t*>(base + weights);
    scales = reinterpret_cast<float*>(base + scale);
    colsums = reinterpret_cast<std::int32_t*>(base + sum);
    thread_base = base + thread;
  }

  template <class T>
  T* mine(std::size_t part, int thread) const {
    return reinterpret_cast<T*>(thread_base + static_cast<std::size_t>(thread) * per_thread + part);
  }

  void operator()(int phase, int thread, int threads) const {
    const FloatMode mode;
    if (phase == 0) {
      const Share all = share(of.b_count * blocks, 1, thread, threads);
      for (std::size_t i = all.begin; i < all.end; ++i) pack_block(i / blocks, i % blocks, mine<float>(turned, thread));
      return;
    }
    const Share all = share(of.count * tiles * parts, 1, thread, threads);
    for (std::size_t i = all.begin; i < all.end; ++i) {
      const std::size_t tile = i / parts, first = tile % tiles * rows;
      multiply(tile / tiles, first, std::min(rows, of.m - first),
               share(blocks, kStepN, static_cast<int>(i % parts), static_cast<int>(parts)), thread);
    }
  }

  // 16 columns of one matrix of b.
  void pack_block(std::size_t matrix, std::size_t block, float* turn) const {
    const std::size_t column = block * kBlockN, columns = std::min(kBlockN, of.n - column), at = matrix * padded + column;
    const float* x = of.b + matrix * of.k * of.n + column * (of.transposed ? of.k : 1);
    float largest[kBlockN] = {}, inverse[kBlockN];
    if (!of.transposed) t.column_sizes({x, of.k, of.n, columns, largest});
    for (std::size_t c = 0; of.transposed && c < columns; ++c) {
      const ValueRange r = t.range(x + c * of.k, of.k);
      largest[c] = r.finite ? std::max(-r.lo, r.hi) : __builtin_nanf("");
    }
    for (std::size_t c = 0; c < kBlockN; ++c) {
      const bool finite = largest[c] == largest[c];
      const float scale = largest[c] / 127.0f;
      scales[at + c] = scale < 1e-30f ? 1.0f : scale;
      inverse[c] = finite ? 1.0f / scales[at + c] : 0.0f;
    }
    std::int8_t* to = packed + matrix * matrix_bytes + block * block_bytes;
    std::int32_t sums[kBlockN] = {};
    if (!of.transposed) {
      t.quantize_columns({x, of.k, of.n, columns, inverse, to, sums});
    } else {
      for (std::size_t k = 0; k < of.k; k += kTurned) {
        const std::size_t inputs = std::min(kTurned, of.k - k);
        turn_rows(x + k, columns, inputs, turn);
        t.quantize_columns({turn, inputs, kBlockN, columns, inverse, to + k * kBlockN, sums});
      }
    }
    if (long_sums()) return;  // a layer makes its own
    for (std::size_t c = 0; c < kBlockN; ++c) colsums[at + c] = column_pair(sums[c]);
  }

  // Rows of a transposed matrix as columns, [inputs][16].
  void turn_rows(const float* x, std::size_t columns, std::size_t inputs, float* to) const {
    if (columns == kBlockN && inputs % kBlockN == 0) {  // nothing behind them is read
      t.transpose({x, kBlockN, inputs, of.k, to, kBlockN});
      return;
    }
    for (std::size_t k = 0; k < inputs; ++k)
      for (std::size_t c = 0; c < columns; ++c) to[k * kBlockN + c] = x[c * of.k + k];
  }

  // Rows first.. of one product, some of its columns.
  void multiply(std::size_t product, std::size_t first, std::size_t count, Share columns, int thread) const {
    auto* panel = mine<std::uint8_t>(panels, thread);
    auto* quant = mine<RowQuant>(quants, thread);
    const float* x = of.a + (of.a_of[product] * of.m + first) * of.k;
    t.quantize_rows({x, count, of.k, of.k, 0, panel, quant, false});
    const std::size_t matrix = of.b_of[product];
    Gemm g{};
    g.panel = panel;
    g.rows = count;
    g.quant = quant;
    g.weight.data = packed + matrix * matrix_bytes;
    g.weight.n = of.n;
    g.weight.k = of.k;
    g.weight.scale = scales + matrix * padded;
    g.weight.colsum = colsums + matrix * padded;
    g.block_begin = columns.begin;
    g.block_end = columns.end;
    g.out = of.out + (product * of.m + first) * of.n;
    g.out_stride = of.n;
    t.gemm(g);
  }

  // Sums too long for int32: one linear layer after the other. Rare.
  void multiply_long(int threads) const {
    for (std::size_t i = 0; i < of.count; ++i) {
      const std::size_t matrix = of.b_of[i];
      const Linear layer({packed + matrix * matrix_bytes, WeightFormat::kInt8}, of.n, of.k, 0, scales + matrix * padded, nullptr, nullptr,
                         Activation::kNone);
      const Rows in{of.a + of.a_of[i] * of.m * of.k, DType::kFloat32, of.m, of.k, nullptr, nullptr};
      const Output out{of.out + i * of.m * of.n, DType::kFloat32, of.n, nullptr, 0};
      const Linear* one = &layer;
      linear(&one, 1, in, &out, threads);
    }
  }
};

}  // namespace

void matmul(const MatMul& of, int threads) {
  if (of.count == 0 || of.m == 0 || of.n == 0) return;
  if (of.k == 0) {
    std::fill(of.out, of.out + of.count * of.m * of.n, 0.0f);
    return;
  }
  const double matrix = static_cast<double>(of.k) * static_cast<double>(of.n);
  const double macs = static_cast<double>(of.count * of.m) * matrix, floats = static_cast<double>(of.b_count) * matrix;
  threads = earned_threads(threads, macs / rate::kTileMacs + floats / rate::kFloats, 2.0);
  Products call{table(), of, 0, 0, 0, 0, 0, 0, 0, 0, nullptr, nullptr, nullptr, nullptr, 0, 0, 0, 0};
  call.plan(threads);
  parallel(threads, call.long_sums() ? 1 : 2, call);
  if (call.long_sums()) call.multiply_long(threads);
}

}  // namespace octavo
