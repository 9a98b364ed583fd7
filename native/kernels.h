// The contract between the drivers (linear, rnn, conv, embedding) and the instruction sets.
//
// Each instruction set is one file that fills one KernelTable; reference.cpp is scalar and
// normative. Every entry gives the same bits in every table: integers are exact, and floating point
// is a fixed sequence of IEEE operations for each element (docs/architecture.md, "Numbers").
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo {

constexpr std::size_t kBlockN = 16;        // output channels of a block of packed weights
constexpr std::size_t kBlockK = 4;         // inputs of a block
constexpr std::size_t kPanelK = 64;        // a panel's rows are padded with zeros to this many inputs
constexpr std::size_t kPanelM = 16;        // kernels may read (not write) a panel's rows up to this multiple
constexpr std::size_t kAlign = 64;         // bytes
constexpr std::size_t kChunkK = 32640;     // inputs whose sums fit int32, and half of a column sum int16
constexpr std::size_t kGroup = 128;        // inputs that share a scale where rows carry groups

constexpr std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

enum class Activation : int { kNone, kRelu, kGelu, kGeluTanh, kSilu, kTanh, kSigmoid };
enum class DType : int { kFloat32, kFloat16, kBFloat16 };

// One row (or one group of a row) of quantized activations. Only the table that made it reads it.
struct RowQuant {
  float scale;         // NaN where the row holds NaN or infinity
  std::int32_t pair;   // zero point z as int16 pair (z, 128 z): one vpdpwssd subtracts z * colsum
  std::int32_t sum;    // sum of (q - z), for affine weights
  std::int32_t extra;  // what an instruction set adds to its sums; 0 in most
};

// A packed weight [n, k]: blocks [ceil(n/16)][ceil(k/4)][16][4] int8, zero padded, 64-byte aligned.
// Arrays over columns are padded to a multiple of 16.
struct Weight {
  const std::int8_t* data = nullptr;
  std::size_t n = 0, k = 0;
  const float* scale = nullptr;              // [n]
  // Minus the column sums, as int16 pairs (c % 128, c / 128, floored): [sections][n]. A section is a
  // group of 128 inputs, or (without groups) a chunk of kChunkK.
  const std::int32_t* colsum = nullptr;
  const std::int32_t* zero = nullptr;        // [n], affine weights; null where all are 0
  std::size_t blocks() const { return (n + kBlockN - 1) / kBlockN; }
  std::size_t padded_n() const { return blocks() * kBlockN; }
  std::size_t block_bytes() const { return (k + kBlockK - 1) / kBlockK * kBlockK * kBlockN; }
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

// out[m, n] = act(fma(f, weight.scale[n], bias[m, n])) + residual[m, n] with f = t * row scale (for
// groups: fma over the groups in ascending order), t the exact integer sum less its zero points.
struct Gemm {
  const std::uint8_t* panel;
  std::size_t rows;
  const RowQuant* quant;                     // [rows][groups]
  std::size_t group;                         // kGroup or 0
  Weight weight;
  std::size_t block_begin, block_end;        // blocks of 16 columns to make
  const float* bias;                         // null: zero
  std::size_t bias_stride;                   // 0: one bias for all rows, else elements from row to row
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

// One step of recurrent layers for `rows` batch items and `units` (a multiple of 16) hidden units.
// Gates lie in blocks: [units / 16][gates][16], so that one pass makes all gates of 16 units.
struct LstmCell {
  const float* gates;                        // [rows][units * 4], i f g o, before their activations
  std::size_t gates_stride;
  float* c;                                  // [rows][units], read and written
  std::size_t c_stride;
  float* h;                                  // [rows][units], written
  std::size_t h_stride;
  std::size_t rows, units;
  float clip;                                // 0: none
};

struct GruCell {
  const float* x;                            // [rows][units * 3], r z n of the input, with its bias
  std::size_t x_stride;
  const float* h_part;                       // [rows][units * 3], r z n of the state, with its bias
  std::size_t h_part_stride;
  const float* h_before;                     // [rows][units]
  std::size_t h_before_stride;
  float* h;
  std::size_t h_stride;
  std::size_t rows, units;
};

struct KernelTable {
  const char* name;
  std::size_t bytes_per_input;               // of a panel: 1, or more where rows are kept in another form
  void (*quantize_rows)(const QuantizeRows&);
  void (*panel_rows)(const PanelRows&);
  void (*gemm)(const Gemm&);
  std::uint64_t (*read)(const std::uint8_t* data, std::size_t bytes);  // reads all, as fast as it can
  void (*activate)(Activation, float* x, std::size_t n);
  void (*widen)(DType from, const void* x, float* y, std::size_t n);
  void (*narrow)(DType to, const float* x, void* y, std::size_t n);
  void (*lstm_cell)(const LstmCell&);
  void (*gru_cell)(const GruCell&);
};

}  // namespace octavo
