#include "layers/linear.h"

#include <algorithm>
#include <cstring>

#include "contract/tables.h"
#include "layers/long_sums.h"
#include "layers/work.h"
#include "runtime/arena.h"
#include "runtime/parallel.h"

namespace octavo {
namespace {

constexpr std::size_t kStepM = 32;       // rows of a kernel's largest tile
constexpr std::size_t kStepN = 4;        // blocks of its widest
constexpr std::size_t kPanelBytes = 512 << 10;  // quantized rows at a time: they stay in the L2 cache
constexpr std::size_t kTileRows = 64, kTileBlocks = 16;  // float32 staging of 16-bit outputs
constexpr std::size_t kNormedBytes = 64 << 10;  // normalized rows at a time: they stay in the L2 cache
constexpr std::size_t kNormedStep = 4;           // short rows are quantized four at a time
constexpr std::size_t kGateBytes = 256 << 10;  // outputs that wait for their gates in the L2 cache

// What the threads of a call divide among themselves.
enum class Split {
  kRows,     // each quantizes some rows and computes all of their columns
  kColumns,  // each quantizes some rows; when all are there, each computes some columns of all rows, or of some
  // docs/notes/processors.md: "Few rows are quantized by each thread for itself"
  kCopies,   // each quantizes all rows for itself, and computes some columns of them
};

Split split_of(int threads, std::size_t rows, std::size_t k) {
  if (threads == 1 || rows >= static_cast<std::size_t>(threads) * kStepM) return Split::kRows;
  // Up to a phase's length a thread quantizes faster than it waits for the others.
  return static_cast<double>(rows * k) <= rate::kInputs * phase_microseconds() ? Split::kCopies : Split::kColumns;
}

// What threads share columns in.
std::size_t units_of(const Linear& layer) { return (layer.weight.blocks() + kStepN - 1) / kStepN; }

// The blocks of some of a layer's units.
Share blocks_of(const Linear& layer, Share units) {
  return {units.begin * kStepN, std::min(layer.weight.blocks(), units.end * kStepN)};
}

// In how many parts, at most `most`, the rows of each unit go so that the busiest thread has little to do. Each
// part reads the unit's weights anew, so a tenth has to be won.
std::size_t parts_for(std::size_t units, std::size_t most, std::size_t threads) {
  const auto busiest = [&](std::size_t parts) {
    return static_cast<double>((units * parts + threads - 1) / threads) / static_cast<double>(parts);
  };
  std::size_t best = 1;
  for (std::size_t parts = 2; parts <= std::min(most, threads); ++parts)
    if (busiest(parts) < 0.9 * busiest(best)) best = parts;
  return best;
}

struct LinearScratch;

// One call of linear(), as its threads see it.
struct Call {
  const KernelTable& t;
  const Linear* const* layers;
  std::size_t count;
  const Rows& in;
  const Output* outs;
  bool gated;  // two layers, whose product is the one output: the second comes first
  std::size_t k, group, groups;
  std::size_t weight_group;  // 0 unless weights come in groups
  bool sums;
  Split split;
  std::size_t units, parts;         // of columns, of rows: what the threads share out (kColumns, kCopies)
  std::size_t panel_stride, chunk;  // rows at a time of one thread (kRows), or all
  std::uint8_t* base;
  std::size_t panels, quants, staging, per_thread;

  bool has_long_sums() const { return k > kChunkK && group == 0 && weight_group == 0; }
  bool staged() const {
    for (std::size_t i = 0; i < count; ++i)
      if (outs[i].type != DType::kFloat32) return true;
    return has_long_sums();
  }

  // Floats of a thread that become integers: rows that were normalized, or one that had 16 bits.
  std::size_t wide() const {
    if (in.norm) return normed_rows() * round_up(k, 16);
    return in.type == DType::kFloat32 || in.scale ? 0 : round_up(k, 16);
  }
  std::size_t normed_rows() const { return std::max<std::size_t>(1, kNormedBytes / sizeof(float) / std::max<std::size_t>(1, k) / kNormedStep * kNormedStep); }

  float* stage(int thread) const { return reinterpret_cast<float*>(base + staging + thread * per_thread); }
  RowQuant* quant(int slot) const {
    return reinterpret_cast<RowQuant*>(base + quants) + slot * round_up(chunk, kPanelM) * groups;
  }
  std::uint8_t* panel(int slot) const { return base + panels + slot * round_up(chunk, kPanelM) * panel_stride; }

  void plan(int threads) {
    panel_stride = weight_group ? group_panel_stride(weight_group, k) : round_up(k, kPanelK) * t.bytes_per_input;
    split = split_of(threads, in.rows, k);
    parts = parts_for(units, parts, static_cast<std::size_t>(threads));
    const std::size_t fit = std::max<std::size_t>(2 * kStepM, kPanelBytes / std::max<std::size_t>(1, panel_stride) / kStepM * kStepM);
    chunk = split == Split::kRows ? std::min(in.rows, fit) : in.rows;
    const std::size_t slots = split == Split::kColumns ? 1 : static_cast<std::size_t>(threads);
    Layout layout;
    panels = layout.add<std::uint8_t>(slots * round_up(chunk, kPanelM) * panel_stride);
    quants = layout.add<RowQuant>(slots * round_up(chunk, kPanelM) * groups);
    Layout one;
    one.add<float>(wide());
    if (staged()) one.add<double>(kTileRows * kTileBlocks * kBlockN * 2);
    per_thread = one.bytes();
    staging = layout.add<std::uint8_t>(per_thread * static_cast<std::size_t>(threads));
    base = scratch<LinearScratch>(layout.bytes());
  }

  // Rows first..last of the input into rows `at` of a slot.
  void quantize(std::size_t first, std::size_t last, int slot, std::size_t at, int thread) const {
    std::uint8_t* to = panel(slot) + at * panel_stride;
    RowQuant* q = quant(slot) + at * groups;
    if (in.norm) {
      normalize(first, last, to, q, thread);
    } else if (in.scale) {
      t.panel_rows({static_cast<const std::uint8_t*>(in.x) + first * in.stride, last - first, k, in.stride,
                    in.scale + first * groups, in.zero_point + first * groups, group, to, q, sums});
    } else if (in.type == DType::kFloat32) {
      quantize_floats(static_cast<const float*>(in.x) + first * in.stride, last - first, in.stride, to, q);
    } else {
      const auto* x = static_cast<const std::uint16_t*>(in.x);
      for (std::size_t m = first; m < last; ++m) {
        t.widen(in.type, x + m * in.stride, stage(thread), k);
        quantize_floats(stage(thread), 1, k, to + (m - first) * panel_stride, q + (m - first) * groups);
      }
    }
  }

  void quantize_floats(const float* x, std::size_t rows, std::size_t stride, std::uint8_t* to, RowQuant* q) const {
    if (weight_group) t.quantize_groups({x, rows, k, stride, weight_group, group != 0, reinterpret_cast<std::int8_t*>(to), q});
    else t.quantize_rows({x, rows, k, stride, group, to, q, sums});
  }

  // The same of rows that are normalized first.
  void normalize(std::size_t first, std::size_t last, std::uint8_t* to, RowQuant* q, int thread) const {
    NormRows some = *in.norm;
    // Where each thread quantizes all rows, one of them keeps the floats.
    const bool kept = some.out && (split != Split::kCopies || thread == 0);
    if (!kept) some.out_stride = round_up(k, 16);
    for (std::size_t m = first; m < last; m += some.rows) {
      some.rows = std::min(normed_rows(), last - m);
      some.x = in.norm->x + m * some.stride;
      some.out = kept ? in.norm->out + m * some.out_stride : stage(thread);
      t.norm_rows(some);
      quantize_floats(some.out, some.rows, some.out_stride, to + (m - first) * panel_stride, q + (m - first) * groups);
    }
  }

  // All columns of all layers for `rows` rows that lie in a slot at its beginning and are rows `first`.. of the call.
  void multiply_all(int slot, std::size_t first, std::size_t rows, int thread) const {
    if (gated) return multiply_gated(slot, 0, first, rows, {0, layers[0]->weight.blocks()}, thread);
    for (std::size_t i = 0; i < count; ++i) multiply(i, slot, 0, first, rows, {0, layers[i]->weight.blocks()}, thread);
  }

  // Some columns of the factors, and then at once of the gates that they are multiplied with.
  void multiply_gated(int slot, std::size_t at, std::size_t first, std::size_t rows, Share blocks, int thread) const {
    if (rows == 0) return;
    const std::size_t step = std::max(kStepN, kGateBytes / (rows * kBlockN * sizeof(float)) / kStepN * kStepN);
    for (std::size_t b = blocks.begin; b < blocks.end; b += step) {
      const Share some{b, std::min(b + step, blocks.end)};
      multiply(1, slot, at, first, rows, some, thread);
      multiply(0, slot, at, first, rows, some, thread);
    }
  }

  // Columns of one layer.
  void multiply(std::size_t which, int slot, std::size_t at, std::size_t first, std::size_t rows, Share blocks, int thread) const {
    const Linear& layer = *layers[which];
    const Output& out = outs[which];
    Gemm g{};
    g.panel = panel(slot) + at * panel_stride;
    g.rows = rows;
    g.quant = quant(slot) + at * groups;
    g.group = group;
    g.weight = layer.weight;
    g.block_begin = blocks.begin;
    g.block_end = blocks.end;
    g.bias = layer.bias;
    g.activation = out.activation ? *out.activation : layer.activation;
    if (gated && which == 0) {
      g.factor = static_cast<const float*>(out.data) + first * out.stride;
      g.factor_stride = out.stride;
    }
    if (out.type == DType::kFloat32 && !has_long_sums()) {
      g.out = static_cast<float*>(out.data) + first * out.stride;
      g.out_stride = out.stride;
      if (out.residual) g.residual = static_cast<const float*>(out.residual) + first * out.residual_stride;
      g.residual_stride = out.residual_stride;
      t.gemm(g);
    } else {
      for (std::size_t m = 0; m < rows; m += kTileRows)
        for (std::size_t b = blocks.begin; b < blocks.end; b += kTileBlocks)
          stage_tile(g, out, first, m, std::min(kTileRows, rows - m), {b, std::min(b + kTileBlocks, blocks.end)}, thread);
    }
  }

  // One tile through float32 scratch: 16-bit outputs, or sums too long for int32.
  void stage_tile(const Gemm& whole, const Output& out, std::size_t first, std::size_t m, std::size_t rows, Share blocks, int thread) const {
    constexpr std::size_t kWide = kTileBlocks * kBlockN;
    float* tile = stage(thread) + wide();
    float* extra = tile + kTileRows * kWide;
    const std::size_t column = blocks.begin * kBlockN;
    const std::size_t columns = std::min(blocks.end * kBlockN, whole.weight.n) - column;
    Gemm g = whole;
    g.panel += m * panel_stride;
    g.quant += m * groups;
    g.rows = rows;
    g.block_begin = blocks.begin;
    g.block_end = blocks.end;
    g.out = tile - column;  // the kernel adds the column
    g.out_stride = kWide;
    if (has_long_sums()) long_sums(t, g, tile, reinterpret_cast<std::int64_t*>(extra), kWide, column, columns);
    else t.gemm(g);
    for (std::size_t r = 0; r < rows; ++r) {
      float* y = tile + r * kWide;
      const std::size_t at = (first + m + r) * out.stride + column;
      for (std::size_t c = 0; g.factor && c < columns; ++c) y[c] *= g.factor[(m + r) * g.factor_stride + column + c];
      if (out.residual) add_residual(out, (first + m + r) * out.residual_stride + column, y, extra, columns);
      if (out.type == DType::kFloat32) std::memcpy(static_cast<float*>(out.data) + at, y, columns * sizeof(float));
      else t.narrow(out.type, y, static_cast<std::uint16_t*>(out.data) + at, columns);
    }
  }

  void add_residual(const Output& out, std::size_t at, float* y, float* extra, std::size_t columns) const {
    if (out.type == DType::kFloat32) std::memcpy(extra, static_cast<const float*>(out.residual) + at, columns * sizeof(float));
    else t.widen(out.type, static_cast<const std::uint16_t*>(out.residual) + at, extra, columns);
    for (std::size_t c = 0; c < columns; ++c) y[c] += extra[c];
  }

  // This thread's columns of its rows, which lie in a slot.
  // docs/notes/processors.md: "Columns and rows are shared out together"
  void columns(int slot, int thread, int threads) const {
    const Share mine = share(units * parts, 1, thread, threads);
    for (std::size_t i = mine.begin; i < mine.end;) {
      const std::size_t first = i % units, last = std::min(units, first + mine.end - i);
      columns_of(share(in.rows, kPanelM, static_cast<int>(i / units), static_cast<int>(parts)), {first, last}, slot, thread);
      i += last - first;
    }
  }

  void columns_of(Share rows, Share some, int slot, int thread) const {
    const std::size_t height = rows.end - rows.begin;
    if (gated) return multiply_gated(slot, rows.begin, rows.begin, height, blocks_of(*layers[0], some), thread);
    for (std::size_t i = 0, at = 0; i < count && at < some.end; ++i) {
      const std::size_t here = units_of(*layers[i]), first = std::max(some.begin, at), last = std::min(some.end, at + here);
      if (first < last) multiply(i, slot, rows.begin, rows.begin, height, blocks_of(*layers[i], {first - at, last - at}), thread);
      at += here;
    }
  }

  int phases() const { return split == Split::kColumns ? 2 : 1; }

  void operator()(int phase, int thread, int threads) const {
    const FloatMode mode;
    if (split == Split::kRows) {
      const Share rows = share(in.rows, kPanelM, thread, threads);
      for (std::size_t m = rows.begin; m < rows.end; m += chunk) {
        const std::size_t n = std::min(chunk, rows.end - m);
        quantize(m, m + n, thread, 0, thread);
        multiply_all(thread, m, n, thread);
      }
    } else if (split == Split::kCopies) {
      quantize(0, in.rows, thread, 0, thread);
      columns(thread, thread, threads);
    } else if (phase == 0) {
      const Share rows = share(in.rows, 1, thread, threads);
      quantize(rows.begin, rows.end, 0, rows.begin, thread);
    } else {
      columns(0, thread, threads);
    }
  }
};

}  // namespace

Linear::Linear(const PackedData& packed, std::size_t n, std::size_t k, std::size_t group_, const float* scale,
               const std::int32_t* zero, const float* bias_, Activation activation_)
    : group(group_), bias(nullptr), activation(activation_), in_use_(n * k * static_cast<std::size_t>(packed.format.bits) / 8) {
  static_cast<PackedData&>(weight) = packed;
  weight.n = n;
  weight.k = k;
  const std::size_t padded = weight.padded_n();
  Layout layout;
  const std::size_t scales = layout.add<float>(padded), biases = layout.add<float>(padded),
                    zeros = layout.add<std::int32_t>(padded),
                    sums = layout.add<std::int32_t>(padded * (packed.format.group ? 1 : sections(k, group)));
  std::uint8_t* base = arrays_.need(layout.bytes());
  std::memset(base, 0, layout.bytes());
  std::copy(scale, scale + n, reinterpret_cast<float*>(base + scales));
  weight.scale = reinterpret_cast<float*>(base + scales);
  if (bias_) {
    std::copy(bias_, bias_ + n, reinterpret_cast<float*>(base + biases));
    bias = reinterpret_cast<float*>(base + biases);
  }
  if (zero) {
    std::copy(zero, zero + n, reinterpret_cast<std::int32_t*>(base + zeros));
    weight.zero = reinterpret_cast<std::int32_t*>(base + zeros);
  }
  // Those of groups come off group by group, or lie in the packed weight: what is here is 0.
  if (!packed.format.group) column_sums(packed.data, n, k, group, weight.zero, reinterpret_cast<std::int32_t*>(base + sums));
  weight.colsum = reinterpret_cast<std::int32_t*>(base + sums);
}

namespace {

void run(const Linear* const* layers, std::size_t count, const Rows& in, const Output* outs, bool gated, int threads) {
  std::size_t columns = 0, units = 0, weight_bytes = 0;
  bool sums = false;
  for (std::size_t i = 0; i < count; ++i) {
    columns += layers[i]->weight.n;
    units += units_of(*layers[i]);
    weight_bytes += layers[i]->weight.block_bytes() * layers[i]->weight.blocks();
    sums = sums || layers[i]->weight.zero;
  }
  if (in.rows == 0 || columns == 0) return;
  const std::size_t k = layers[0]->weight.k, group = layers[0]->group, weight_group = layers[0]->weight.format.group;
  const double products = static_cast<double>(columns) * static_cast<double>(k) * static_cast<double>(in.rows);
  threads = earned_threads(threads, std::max(products / rate::kMacs, rate::weight_microseconds(static_cast<double>(weight_bytes))));
  if (gated) units /= 2;  // columns of both layers belong together
  // Who gets no columns would quantize for nothing, and wait.
  const std::size_t parts = split_of(threads, in.rows, k) == Split::kColumns ? std::max<std::size_t>(1, in.rows / kStepM) : 1;
  if (split_of(threads, in.rows, k) != Split::kRows) threads = static_cast<int>(std::min<std::size_t>(static_cast<std::size_t>(threads), units * parts));
  Call call{table(), layers, count, in, outs, gated, k, group, groups_of(k, weight_group ? weight_group : group), weight_group, sums, Split::kRows, units, parts, 0, 0, nullptr, 0, 0, 0, 0};
  call.plan(threads);
  parallel(threads, call.phases(), call);
}

}  // namespace

void linear(const Linear* const* layers, std::size_t count, const Rows& in, const Output* outs, int threads) {
  run(layers, count, in, outs, false, threads);
}

void gated_linear(const Linear& first, Activation activation, const Linear& second, const Rows& in, const Output& out, int threads) {
  const Linear* layers[] = {&first, &second};
  Output outs[] = {out, out};
  constexpr Activation kPlain = Activation::kNone;
  outs[0].activation = &activation;
  outs[1].activation = &kPlain;
  run(layers, 2, in, outs, true, threads);
}

void quantize_rows(const Rows& in, std::size_t k, std::size_t group, std::uint8_t* q, std::size_t q_stride,
                   float* scale, std::int32_t* zero_point) {
  // In the scalar table's panels the integers are plain, so they can be copied out.
  static const KernelTable plain = reference_table();
  const KernelTable& t = table().plain_panels() ? table() : plain;
  const std::size_t groups = groups_of(k, group), stride = round_up(k, kPanelK);
  Layout layout;
  const std::size_t panel = layout.add<std::uint8_t>(kPanelM * stride), quant = layout.add<RowQuant>(groups), wide = layout.add<float>(k);
  std::uint8_t* base = scratch<LinearScratch>(layout.bytes());
  auto* one = reinterpret_cast<RowQuant*>(base + quant);
  const FloatMode mode;
  for (std::size_t m = 0; m < in.rows; ++m) {
    const float* x = static_cast<const float*>(in.x) + m * in.stride;
    if (in.type != DType::kFloat32) {
      t.widen(in.type, static_cast<const std::uint16_t*>(in.x) + m * in.stride, reinterpret_cast<float*>(base + wide), k);
      x = reinterpret_cast<float*>(base + wide);
    }
    t.quantize_rows({x, 1, k, k, group, base + panel, one, false});
    std::memcpy(q + m * q_stride, base + panel, k);
    for (std::size_t g = 0; g < groups; ++g) {
      scale[m * groups + g] = one[g].scale;
      zero_point[m * groups + g] = one[g].pair & 0xffff;
    }
  }
}

}  // namespace octavo
