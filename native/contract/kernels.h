// The contract between the drivers (linear, rnn, conv, embedding) and the instruction sets.
//
// Each instruction set is one file that fills one KernelTable; table_reference.cpp is scalar and
// normative. Every entry gives the same bits in every table: integers are exact, and floating point
// is a fixed sequence of IEEE operations for each element (docs/numbers.md).
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/inlined.h"

namespace octavo {

constexpr std::size_t kBlockN = 16;        // output channels of a block of packed weights
constexpr std::size_t kBlockK = 4;         // inputs of a block
constexpr std::size_t kPanelK = 64;        // a panel's rows are padded with zeros to this many inputs
constexpr std::size_t kPanelM = 16;        // kernels may read (not write) a panel's rows up to this multiple
constexpr std::size_t kAlign = 64;         // bytes
constexpr std::size_t kChunkK = 32640;     // inputs whose sums fit int32, and half of a column sum int16
constexpr std::size_t kGroup = 128;        // inputs that share a scale where rows carry groups

constexpr OCTAVO_INLINE std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Blocks along k inputs.
constexpr OCTAVO_INLINE std::size_t steps_of(std::size_t k) { return (k + kBlockK - 1) / kBlockK; }

// Two int16 in one int32, as vpdpwssd reads them.
constexpr OCTAVO_INLINE std::int32_t int16_pair(std::int32_t low, std::int32_t high) {
  return static_cast<std::int32_t>((static_cast<std::uint32_t>(high) << 16) | (static_cast<std::uint32_t>(low) & 0xffffu));
}

// Scales of a row: one for each started group, at least one.
constexpr OCTAVO_INLINE std::size_t groups_of(std::size_t k, std::size_t group) {
  return group && k ? (k + group - 1) / group : 1;
}

enum class Activation : int { kNone, kRelu, kGelu, kGeluTanh, kSilu, kTanh, kSigmoid };
// How a packed weight holds its integers, in memory and in files; layers/pack.h has their names. int8 has one scale for
// each output, beside the packed weight. In groups, `group` inputs of an output share a float16 scale, and where it is
// affine a zero point, or a float16 minimum: w = scale q + minimum. Else the zero point is half of the range.
struct WeightFormat {
  std::size_t group = 0;                     // 0 (int8), 32, 64 or 128
  int bits = 8;                              // 4 or 8
  bool affine = false;
  bool minimum = false;
  static const WeightFormat kInt8;

  OCTAVO_INLINE std::int32_t zero() const { return minimum ? 0 : 1 << (bits - 1); }  // of groups without zero points of their own
  OCTAVO_INLINE std::size_t zero_bytes() const { return affine ? 1 : minimum ? 2 : 0; }  // of a group, before they are packed
  OCTAVO_INLINE std::size_t groups(std::size_t k) const { return k > group ? (k + group - 1) / group : 1; }
  OCTAVO_INLINE bool operator==(const WeightFormat& o) const { return group == o.group && bits == o.bits && affine == o.affine && minimum == o.minimum; }
};
inline constexpr WeightFormat WeightFormat::kInt8{};

// The products that tables have, by weight.
enum class WeightKind : int { kInt8, kGroups4, kGroups8 };
constexpr std::size_t kWeightKinds = 3;
constexpr OCTAVO_INLINE WeightKind kind_of(const WeightFormat& f) {
  return !f.group ? WeightKind::kInt8 : f.bits == 4 ? WeightKind::kGroups4 : WeightKind::kGroups8;
}

// A block of 16 outputs in groups, its inputs padded to whole groups; sizes in bytes. Group after group: integers, of 4 bits
// [inputs / 8][16][4] with input i of 8 in the lower half of a byte and i + 4 in its upper one, of 8 bits [inputs / 4][16][4];
// float16 scales [16]; zero points, of 4 bits eight bytes whose lower halves are those of the outputs 0..7, or float16
// minima [16]. Then
// float32 [16], the offsets of docs/numbers.md. All of it is read from end to end.
// docs/notes/processors.md: "Weights in groups are one stream"
struct GroupBlock {
  WeightFormat format;
  std::size_t groups;
  std::size_t scales, zeros, group_bytes;    // from the beginning of a group; all of it
  std::size_t offsets, bytes;                // from the beginning of the block; all of it

  OCTAVO_INLINE GroupBlock(const WeightFormat& f, std::size_t k)
      : format(f), groups(f.groups(k)), scales(f.group * kBlockN * static_cast<std::size_t>(f.bits) / 8), zeros(scales + kBlockN * 2),
        group_bytes(zeros + (f.affine ? kBlockN * static_cast<std::size_t>(f.bits) / 8 : f.minimum ? kBlockN * 2 : 0)), offsets(round_up(groups * group_bytes, kAlign)),
        bytes(offsets + kBlockN * sizeof(float)) {}

  // Of output c of a block: its integer i, the bits of scale j, and zero point j.
  OCTAVO_INLINE int integer(const void* block, std::size_t c, std::size_t i) const {
    const std::uint8_t q = group(block, i / format.group)[place(c, i % format.group)];
    return format.bits == 8 ? q : (q >> shift(i)) & 15;
  }
  OCTAVO_INLINE std::uint16_t scale(const void* block, std::size_t c, std::size_t j) const { return half(group(block, j) + scales, c); }
  OCTAVO_INLINE std::uint16_t minimum(const void* block, std::size_t c, std::size_t j) const { return half(group(block, j) + zeros, c); }
  OCTAVO_INLINE int zero(const void* block, std::size_t c, std::size_t j) const {
    if (!format.affine) return format.zero();
    const std::uint8_t* z = group(block, j) + zeros;
    return format.bits == 8 ? z[c] : (z[c % 8] >> (c < 8 ? 0 : 4)) & 15;
  }
  // Where they lie: the byte of input i of a group, and by how many bits 4 of them are shifted.
  OCTAVO_INLINE std::size_t place(std::size_t c, std::size_t i) const {
    return (i / (format.bits == 4 ? 8 : kBlockK) * kBlockN + c) * kBlockK + i % kBlockK;
  }
  static OCTAVO_INLINE std::uint16_t half(const std::uint8_t* p, std::size_t c) {
    std::uint16_t bits;
    __builtin_memcpy(&bits, p + c * sizeof bits, sizeof bits);
    return bits;
  }
  static OCTAVO_INLINE int shift(std::size_t i) { return i % 8 < kBlockK ? 0 : 4; }
  OCTAVO_INLINE const std::uint8_t* group(const void* block, std::size_t j) const { return static_cast<const std::uint8_t*>(block) + j * group_bytes; }
};

enum class DType : int { kFloat32, kFloat16, kBFloat16 };

// One row (or one group of a row) of quantized activations. Only the table that made it reads it.
struct RowQuant {
  float scale;         // NaN where the row holds NaN or infinity
  // Two int16 that one vpdpwssd or vpmaddwd multiplies with Weight::colsum, which subtracts the zero points: of the
  // zero point z (z, 128 z), of a group's (z, -sum), or, where no sums are wanted, anything in the place of
  // -sum: it meets zeros.
  std::int32_t pair;
  std::int32_t sum;    // sum of (q - z), for affine weights without groups
  std::int32_t extra;  // what an instruction set adds to its sums; 0 in most
};

// Packed integers, 64-byte aligned. int8: blocks [ceil(n/16)][ceil(k/4)][16][4], zero padded; groups: GroupBlocks.
struct PackedData {
  const std::int8_t* data = nullptr;
  WeightFormat format{};
};

// A packed weight [n, k]. Arrays over columns are padded to a multiple of 16.
struct Weight : PackedData {
  std::size_t n = 0, k = 0;
  const float* scale = nullptr;              // [n]; may begin at any float
  // Minus the column sums c, as int16 pairs: [sections][n]. A section is a chunk of kChunkK, whose pairs
  // are (c % 128, c / 128, floored), or a group of 128 inputs, where c fits int16: then (c, zero).
  const std::int32_t* colsum = nullptr;
  const std::int32_t* zero = nullptr;        // [n], affine weights; null where all are 0. Not for groups
  OCTAVO_INLINE std::size_t blocks() const { return (n + kBlockN - 1) / kBlockN; }
  OCTAVO_INLINE std::size_t padded_n() const { return blocks() * kBlockN; }
  OCTAVO_INLINE std::size_t block_bytes() const { return format.group ? GroupBlock(format, k).bytes : steps_of(k) * kBlockK * kBlockN; }
};

// Quantizes `rows` rows of float32 into a panel.
struct QuantizeRows {
  const float* x;
  std::size_t rows, k, stride;               // stride in elements
  std::size_t group;                         // inputs of a scale: kGroup, or 0 for the whole row
  std::uint8_t* panel;                       // [rows][round_up(k, kPanelK) * bytes_per_input]
  RowQuant* quant;                           // [rows][groups]
  bool sums;                                 // whether RowQuant::sum is wanted
};

// The same for weights in groups, whose panels are int8, of every table: x' of docs/numbers.md, zeros behind a row. Of each
// group RowQuant has minus the sum of its x' (`sum`, and `pair` with 0 above it) and the zero point less 128 (`extra`).
struct QuantizeGroups {
  const float* x;
  std::size_t rows, k, stride;
  std::size_t group;                         // of the weights
  bool each;                                 // a scale for each group, symmetric; else scale and zero point of the row
  std::int8_t* panel;                        // [rows][group_panel_stride(group, k)]
  RowQuant* quant;                           // [rows][groups]
};
constexpr OCTAVO_INLINE std::size_t group_panel_stride(std::size_t group, std::size_t k) {
  return round_up(round_up(k ? k : 1, group), kPanelK);
}

// Integers that are quantized already, as a panel.
struct PanelRows {
  const std::uint8_t* q;
  std::size_t rows, k, stride;
  const float* scale;                        // [rows * groups]
  const std::int32_t* zero_point;            // [rows * groups], 0..255
  std::size_t group;
  std::uint8_t* panel;
  RowQuant* quant;
  bool sums;
};

// out[m, n] = act(fma(f, weight.scale[n], bias[m, n])) * factor[m, n] + residual[m, n] with f = t * row scale (for
// groups: fma over the groups in ascending order), t the exact integer sum less its zero points. What there is not is left out.
// Weights in groups: as docs/numbers.md says of them; `group` is then theirs where each group of a row has a scale.
struct Gemm {
  const std::uint8_t* panel;
  std::size_t rows;
  const RowQuant* quant;                     // [rows][groups]
  std::size_t group;                         // kGroup or 0
  Weight weight;
  std::size_t block_begin, block_end;        // blocks of 16 columns to make
  const float* bias;                         // null: zero
  std::size_t bias_stride;                   // 0: one bias for all rows, else elements from row to row
  const float* factor;                       // null: none; may be `out`
  std::size_t factor_stride;
  const float* residual;                     // null: none
  std::size_t residual_stride;
  Activation activation;
  float* out;                                // column 0 of row 0
  std::size_t out_stride;
  // For k > kChunkK: writes the integers of one chunk instead, less zero point times column sum, and
  // nothing of the above.
  std::int32_t* raw;                         // null: the usual
  std::size_t raw_stride;
  std::size_t chunk;
};

// out[m, n] = act(s + bias[n]) + residual[m, n], s = fma(x[m, k], w[n, k], s) in ascending k from 0.
struct HalfGemm {
  const float* x;
  std::size_t rows, stride;
  const std::uint16_t* weight;               // [ceil(n/16)][k][16] of `type`, zero padded, aligned
  DType type;                                // kFloat16 or kBFloat16
  std::size_t n, k;
  std::size_t block_begin, block_end;        // blocks of 16 columns to make
  const float* bias;                         // [n], padded to a multiple of 16
  const float* residual;                     // null: none
  std::size_t residual_stride;
  Activation activation;
  float* out;                                // column 0 of row 0
  std::size_t out_stride;
};

// A quantized embedding table [rows, dim], row by row.
struct EmbeddingTable {
  const std::uint8_t* data;                  // int8 or uint8
  bool is_signed;
  std::size_t dim;
  const float* scale;                        // [rows]
  const std::int32_t* zero;                  // [rows]; null where all are 0
};

// out[i, :] = float(q - zero) * scale of row indices[i], for i in begin..end-1. Indices are valid.
struct EmbeddingLookup {
  EmbeddingTable table;
  const void* indices;
  bool wide;                                 // int64, else int32
  std::size_t begin, end;
  float* out;                                // row of index 0
  std::size_t out_stride;
};

enum class BagMode : int { kSum, kMean, kMax };

// Bags begin..end-1, each of indices starts[b]..starts[b+1]-1 in ascending order. Sum:
// s = fma(float(q - zero), scale * weight, s) from 0. Mean: that, divided by how many there were.
struct EmbeddingBag {
  EmbeddingTable table;
  const void* indices;
  bool wide;
  std::size_t count;                         // of indices
  const std::size_t* starts;
  std::size_t begin, end;
  const float* weights;                      // one for each index; null: 1
  std::int64_t padding;                      // this index is passed over; -1: none
  BagMode mode;
  float* out;                                // row of bag 0
  std::size_t out_stride;
};

// out[m, n] = s, s = fma(x[m, k], w[n, k], s) in ascending k from bias[m, n].
struct FloatGemm {
  const float* x;
  std::size_t rows, x_stride, k;
  const float* weight;                       // [blocks][k][16], zero padded
  std::size_t block_begin, block_end;        // blocks of 16 columns to make; they are written whole
  const float* bias;                         // null: zero
  std::size_t bias_stride;                   // 0: one bias for all rows, else elements from row to row
  float* out;                                // column 0 of row 0
  std::size_t out_stride;
};

// One step of a recurrent layer, after its products, for some batch items and some hidden units. Gates
// lie in blocks: [units / 16][gates][16], so that one pass makes all gates of 16 units. Pointers are to
// the first of the units; strides are from item to item. `clip` bounds the gates before their sigmoid
// or tanh to -clip..clip; 0: nothing does. With `powers` gates come multiplied by the factors below, and
// nothing bounds them.
constexpr float kSigmoidPower = -1.44269504f, kTanhPower = 2.88539008f;  // -log2 e, 2 log2 e
struct CellOutput {
  std::size_t rows, units;                   // units: a multiple of 16
  float* h;                                  // [rows][units]
  std::size_t h_stride;
  float* y;                                  // h again, without padded units; null: not wanted
  std::size_t y_stride, y_units;             // y_units: how many units there are from the first on
};

// c = sigmoid(f) c + sigmoid(i) tanh(n), h = sigmoid(o) tanh(c)
struct LstmCell {
  CellOutput out;
  float* gates;                              // [rows][units * 4]: i f n o; overwritten
  std::size_t gates_stride;
  float* c;                                  // [rows][units], read and written
  std::size_t c_stride;
  float clip;
  bool powers;
};

// r = sigmoid(x_r + g_r), z = sigmoid(x_z + g_z), n = tanh(x_n + r g_n), h = (1 - z) n + z before
struct GruCell {
  CellOutput out;
  const float* x;                            // [rows][units * 3]: r z n of the input, with its bias
  std::size_t x_stride;
  float* gates;                              // [rows][units * 3]: r z n of the state, with its bias; overwritten
  std::size_t gates_stride;
  const float* before;                       // [rows][units]
  std::size_t before_stride;
  float clip;
  bool powers;
};

// The GRU whose reset gate comes before the product (ONNX's linear_before_reset = 0) has two halves:
// reset = sigmoid(x_r + g_r) before, update = exp(-(x_z + g_z)) ...
struct ResetCell {
  std::size_t rows, units;
  const float* x;                            // [rows][units * 3], as GruCell's
  std::size_t x_stride;
  const float* gates;                        // [rows][units * 2]: r z of the state
  std::size_t gates_stride;
  const float* before;
  std::size_t before_stride;
  float* reset;                              // [rows][units]
  std::size_t reset_stride;
  float* update;                             // [rows][units]
  std::size_t update_stride;
  float clip;
};

// ... and, after the product of reset, n = tanh(x_n + g), h = (1 - z) n + z before, z = 1 / (1 + update).
struct UpdateCell {
  CellOutput out;
  const float* x;
  std::size_t x_stride;
  const float* gates;                        // [rows][units]
  std::size_t gates_stride;
  const float* update;
  std::size_t update_stride;
  const float* before;
  std::size_t before_stride;
  float clip;
};

// h = tanh(g), or relu(g)
struct RnnCell {
  CellOutput out;
  const float* gates;                        // [rows][units]
  std::size_t gates_stride;
  bool relu;
  float clip;
};

// The parts of a convolution. A float image is [channels][pixels]; quantized it is channels last, so
// that a window's inputs lie side by side.
struct ValueRange {
  float lo, hi;                              // lo <= 0 <= hi
  bool finite;                               // whether no value is NaN or infinite
};

// Pixels that lie side by side in every channel, as integers: clamp(round(x * inverse) + zero_point).
struct QuantizePixels {
  const float* x;
  std::size_t channels, channel_stride, pixels;
  float inverse;
  std::int32_t zero_point;
  std::uint8_t* to;                          // [pixels][stride], `channels` bytes of each are written;
  std::size_t stride;                        // what is between them may become zeros
};

// Rows of a panel from windows of a quantized image: each window is `segments` runs of `length` bytes.
struct Windows {
  const std::uint8_t* image;                 // 63 bytes behind it are readable
  std::size_t width, row_step, pixel_step;   // windows in a row; bytes from row to row, from window to window
  std::size_t first, count;
  const std::size_t* offset;                 // [segments], from the window's start, in bytes
  std::size_t segments, length;
  std::uint8_t* to;                          // [count][stride] and 128 bytes; zeros behind a window
  std::size_t stride;                        // a multiple of kPanelK
};

// The largest of each `down` by `across` rows, column by column: to[i][c] = max over d and a of
// from[d * row_step + i * across + a][c]. `to` may be `from`. Of NaN and numbers it may be either: images
// are NaN as a whole.
struct MaxPool {
  const float* from;                         // readable and writable up to multiples of 16 columns
  std::size_t stride;                        // floats from row to row, of `to` too
  std::size_t count, columns;                // of results
  std::size_t down, across, row_step;        // row_step: in rows
  float* to;
};

// to[c][r] = from[r][c].
struct Transpose {
  const float* from;                         // readable up to multiples of 16 rows and columns
  std::size_t rows, columns, stride;
  float* to;
  std::size_t to_stride;
};

// q - zero_point as floats. With a step the columns of a row are dealt out, so that windows which lie
// `step` apart are side by side: column i, counted from `first`, goes to (i % step) * run + i / step.
struct QuantizeLevels {
  const float* x;                            // [rows][columns]
  std::size_t rows, columns;
  float inverse;
  std::int32_t zero_point;
  float* to;
  std::size_t row;                           // floats from row to row
  std::size_t first, step, run;
};

// One channel by one filter over a plane of such floats: the sums are integers below 2^24, so exact.
// out = act(fma(sum * scale, weight_scale, bias)).
struct Depthwise {
  const float* plane;                        // 64 floats behind it are readable
  std::size_t row_step;                      // floats from an output row's windows to the next's
  const std::size_t* offset;                 // [taps], of each tap from a window's start
  const float* weight;                       // [taps]
  std::size_t taps, rows, columns;
  float scale, weight_scale, bias;
  Activation activation;
  float* out;                                // [rows][columns]
};

// Up to 16 columns of activations [k][stride] on their way into a packed weight: the largest size in each
// column, NaN where it holds NaN or infinity, 0 beyond `columns`.
struct ColumnSizes {
  const float* x;
  std::size_t k, stride, columns;
  float* largest;                            // [16]
};

// clamp(round(x * inverse), -127, 127) as a block of a packed weight, inputs padded with zeros to whole
// steps of 4. Adds the integers of each column to `sums`.
struct QuantizeColumns {
  const float* x;                            // [k][stride], as in ColumnSizes
  std::size_t k, stride, columns;
  const float* inverse;                      // [16]
  std::int8_t* to;                           // [ceil(k/4)][16][4]
  std::int32_t* sums;                        // [16]
};

// Attention of queries that lie side by side to a block of keys (attention_panel.h). Rows of panels have
// kPanelQueries floats; `columns` of them, a multiple of 16, are made. Blocks of one panel come one after the other:
// top, sums and out carry over, and after the last one out is done.
constexpr std::size_t kPanelQueries = 64;
struct AttentionPanel {
  const float* queries;                      // [depth][64]
  std::size_t columns, depth, keys, value_depth;
  float scale;                               // of the products with k
  float softcap;                             // bounds them then: softcap * tanh(s / softcap); 0: nothing does
  const float* k;                            // [keys][depth]
  std::size_t k_stride;
  const float* v;                            // [keys][value_depth]
  std::size_t v_stride;
  const float* bias;                         // [keys], the same for all queries; null: none
  const float* bias_panel;                   // [keys][64]; null: none
  const std::uint64_t* counts;               // [keys], a bit for each query; null: all keys count
  bool first, last;                          // block of the panel
  float* scores;                             // [keys][64], scratch
  float* factor;                             // [64], scratch
  float *top, *sums;                         // [64]
  float* out;                                // [value_depth][64]
};
// The same in products of bfloat16. What is multiplied are pairs of them in four bytes, the first one lower: `queries`
// [ceil(depth / 2)][64] and `k` [keys][ceil(depth / 2)] are pairs of inputs, `v` [ceil(keys / 2)][value_depth] is pairs
// of keys, and what is missing of the last pair is 0. Scores become pairs of keys too.
constexpr OCTAVO_INLINE std::size_t pairs_of(std::size_t n) { return (n + 1) / 2; }
// to[i] is the pair of low[i] and high[i], each to the nearest, halves to even; null: of 0.
struct PairRows {
  const float *low, *high;
  float* to;                                 // pairs; may be neither of them
  std::size_t n;
};

// Attention of a few queries to a chunk of keys (attention_rows.h), whose products are sums in 16 lanes (of every 16th
// input) that are then added by halves. Weights add up likewise.
struct AttentionPart {                       // what one chunk gives one query, before value_depth floats
  float top, sum;                            // the largest score, and the sum of e^(score - top)
  float counts;                              // 0: no key counts; set by who asks
  float unused[13];
};
struct AttentionRows {
  const float* queries;                      // [columns][depth]
  std::size_t columns, depth, keys, value_depth;
  float scale, softcap;                      // as AttentionPanel's
  const float* k;                            // [keys][depth]
  std::size_t k_stride;
  const float* v;                            // [keys][value_depth]
  std::size_t v_stride;
  const float* const* bias;                  // [columns] rows of [keys]; null: none
  float* scores;                             // [columns][round_up(keys, 16)], scratch
  AttentionPart* parts;                      // of column 0; `part_floats` from one to the next
  std::size_t part_floats;
};

// out = sum over chunks of part * e^(part.top - top), over the sum of theirs, in ascending order; 0 where no key counts.
struct MergeParts {
  AttentionPart* parts;                      // of chunk 0; their tops are overwritten
  std::size_t chunks, stride;                // floats from chunk to chunk
  std::size_t value_depth;
  float* out;
};

// Bit r of counts[t] is whether mask[r][t * step] is not 0.
struct KeyBits {
  const std::uint8_t* const* mask;
  std::size_t rows, step, keys;              // up to 64 rows
  std::uint64_t* counts;
};

// Rows to variance 1, for kLayer to mean 0 too: out = fma(d * inverse, weight, bias) with d = v - mean and
// inverse = 1 / sqrt(sum of d^2 / columns + eps); for kRms d = v. v is x, or x + residual. Sums run in 16 lanes
// (of every 16th element), which are then added by halves.
enum class Norm : int { kLayer, kRms };
struct NormRows {
  Norm kind = Norm::kLayer;
  const float* x = nullptr;                  // [rows][columns]
  std::size_t rows = 0, columns = 0, stride = 0;
  const float* residual = nullptr;           // null: none
  std::size_t residual_stride = 0;
  const float* weight = nullptr;             // [columns]; null: 1
  const float* bias = nullptr;               // [columns]; null: 0
  float eps = 0.0f;
  float* sum = nullptr;                      // x + residual; may be either of them; null: not wanted
  std::size_t sum_stride = 0;
  float* out = nullptr;                      // [rows][columns]; may be x or residual, not `sum`
  std::size_t out_stride = 0;
};

// Rotary positions: of the first `turned` elements of a row, which are pairs (a, b), each becomes
// (fma(a, cos, -(b * sin)), fma(b, cos, a * sin)); the others are copied. The rows of a call share cosines and sines.
struct RotaryRows {
  const float* x;                            // rows `step` elements apart
  std::size_t rows, step;
  std::size_t width, turned;                 // turned <= width, even
  bool interleaved;                          // pairs of neighbours; else of elements half of `turned` apart
  bool each;                                 // cos and sin have `turned` elements, one for each; else one for each pair
  const float *cos, *sin;
  float* out;                                // may be x
  std::size_t out_step;
};

// Functions of one element: those of `Activation`, and the like. NaN stays NaN.
enum class Unary : int { kNeg, kExp, kTanh, kSigmoid, kRelu, kGelu, kGeluTanh, kSilu, kRsqrt, kSqrt, kReciprocal, kAbs, kErf };

// Of two. The larger or smaller of a number and NaN is NaN.
enum class Binary : int { kAdd, kSub, kMul, kDiv, kMin, kMax };
struct BinaryRow {
  Binary op;
  const float* a;
  std::size_t a_step;                        // 1, or 0 where one serves all
  const float* b;
  std::size_t b_step;
  std::size_t n;
  float* out;                                // may be a or b
};

// Rows to e^(x - largest) / sum; what is more than 87.3 below the largest is 0. Sums in 16 lanes, as those of norms.
struct SoftmaxRows {
  const float* x;
  std::size_t rows, columns, stride;
  float* out;                                // may be x
  std::size_t out_stride;
};

// The sum of each row, in 16 lanes, divided by `by`.
struct RowSums {
  const float* x;
  std::size_t rows, columns, stride;
  float by;
  float* out;                                // [rows]
};

// Widens lo <= 0 <= hi by n weights: one pair by all of them, or with `each` n pairs. False where one is
// NaN or infinite.
struct WeightRange {
  const float* w;
  std::size_t n;
  bool each;
  float *lo, *hi;
};

// Sums over weights go in lanes, so that vectors add them in no other order, and in double: the square of a
// float above 1e19 or below 1e-19 does not fit into a float.
constexpr std::size_t kWeightLanes = 16;
struct WeightSums {
  double signal[kWeightLanes];               // of w^2
  double noise[kWeightLanes];                // of (w - dequantized w)^2
};

// q = clamp(round_half_even(w / scale), lo, hi) + zero_point, by one scale, lo, hi and zero point, or with
// `each` n of them. Adds to `sums`.
struct WeightRun {
  const float* w;
  std::size_t n;
  bool each;
  const float *scale, *lo, *hi;
  const std::int32_t* zero_point;
  bool is_signed;
  void* q;                                   // int8 or uint8
  WeightSums* sums;
};

// Weights of 16 outputs side by side, `n` of each, which are a group of a few bits each.
constexpr std::size_t kRoundLanes = 16;
struct RoundGroups {
  const float* v;                            // [n][kRoundLanes]
  const float* importance;                   // [n], of an input's squared error; finite, 0 or more
  std::size_t n;
  int bits;                                  // 4 or 8
  bool affine;                               // with a zero point of its own
  bool search;                               // else scale and zero point are the range's
  std::int32_t* q;                           // [n][kRoundLanes], 0 .. 2^bits - 1
  std::uint16_t* scale;                      // [kRoundLanes], float16
  float *zero, *signal, *noise;              // [kRoundLanes]: zero point, sums of v^2 and (v - scale (q - zero))^2
};

// Tiles of 16 rows of 16 words of four bytes, turned: word j of row i becomes word i of row j. `streamed`:
// as stream_lines writes; `to` and what leads from there are multiples of kAlign then.
struct TransposeWords {
  const std::int8_t* from;
  std::size_t stride, step;                  // bytes from row to row, from tile to tile
  std::int8_t* to;
  std::size_t to_stride, to_step;
  std::size_t tiles;
  bool streamed;
};

struct KernelTable {
  const char* name;
  std::size_t bytes_per_input;               // of a panel: 1, or more where rows are kept in another form
  bool shifted_panels;                       // whether a panel holds q - 128 for q
  std::size_t rows_per_weight_read;          // for fewer, reading a weight from the L3 cache takes longer than multiplying
  void (*quantize_rows)(const QuantizeRows&);
  void (*panel_rows)(const PanelRows&);
  void (*quantize_groups)(const QuantizeGroups&);
  void (*products[kWeightKinds])(const Gemm&);  // by WeightKind
  std::uint64_t (*read)(const std::uint8_t* data, std::size_t bytes);  // reads all, as fast as it can
  void (*activate)(Activation, float* x, std::size_t n);
  // 16-bit floats to and from float32, to the nearest, halves to even; a NaN stays one.
  void (*widen)(DType from, const void* x, float* y, std::size_t n);
  void (*narrow)(DType to, const float* x, void* y, std::size_t n);
  void (*half_gemm)(const HalfGemm&);
  void (*embedding_lookup)(const EmbeddingLookup&);
  void (*embedding_bag)(const EmbeddingBag&);
  void (*lstm_cell)(const LstmCell&);
  void (*gru_cell)(const GruCell&);
  void (*reset_cell)(const ResetCell&);
  void (*update_cell)(const UpdateCell&);
  void (*rnn_cell)(const RnnCell&);
  void (*float_gemm)(const FloatGemm&);
  ValueRange (*range)(const float* x, std::size_t n);
  void (*quantize_pixels)(const QuantizePixels&);
  void (*windows)(const Windows&);
  void (*max_pool)(const MaxPool&);
  void (*transpose)(const Transpose&);
  void (*quantize_levels)(const QuantizeLevels&);
  void (*depthwise)(const Depthwise&);
  void (*column_sizes)(const ColumnSizes&);
  void (*quantize_columns)(const QuantizeColumns&);
  bool (*weight_range)(const WeightRange&);
  void (*quantize_weight)(const WeightRun&);
  void (*round_groups)(const RoundGroups&);
  void (*attention_panel)(const AttentionPanel&);
  void (*attention_pairs)(const AttentionPanel&);  // in products of bfloat16
  bool bfloat16_instruction;                 // which multiplies those, so that they take less time than float32
  void (*pair_rows)(const PairRows&);
  void (*key_bits)(const KeyBits&);
  void (*attention_rows)(const AttentionRows&);
  void (*merge_parts)(const MergeParts&);
  void (*norm_rows)(const NormRows&);
  void (*rotary)(const RotaryRows&);
  void (*unary)(Unary, const float* x, float* out, std::size_t n);  // out may be x
  void (*binary)(const BinaryRow&);
  void (*softmax)(const SoftmaxRows&);
  void (*row_sums)(const RowSums&);
  void (*transpose_words)(const TransposeWords&);
  // Whole lines of kAlign bytes, `to` aligned; without reading it first, where a processor can.
  void (*stream_lines)(std::int8_t* to, const std::int8_t* from, std::size_t lines);
  void (*end_of_streams)();                  // what was streamed is seen by other threads from here on

  OCTAVO_INLINE bool plain_panels() const { return bytes_per_input == 1 && !shifted_panels; }
  OCTAVO_INLINE auto& product(WeightKind kind) { return products[static_cast<std::size_t>(kind)]; }
  OCTAVO_INLINE void gemm(const Gemm& g) const { products[static_cast<std::size_t>(kind_of(g.weight.format))](g); }
};

}  // namespace octavo
