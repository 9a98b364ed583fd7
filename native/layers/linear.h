// Dynamically quantized linear layers: rows in, rows out, over the table in use.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"
#include "layers/weights_in_use.h"
#include "runtime/arena.h"

namespace octavo {

// A layer: what does not change from call to call. It owns the arrays over columns, padded, and
// refers to the packed weight.
class Linear {
 public:
  // scale [n], zero [n] or null, bias [n] or null. The packed data must outlive the layer and be
  // aligned to kAlign. `group`: kGroup or 0; of a weight in groups, its own or 0.
  Linear(const PackedData& packed, std::size_t n, std::size_t k, std::size_t group, const float* scale,
         const std::int32_t* zero, const float* bias, Activation activation);

  // Whether rows that are quantized for `other` are this layer's too.
  bool takes_rows_of(const Linear& other) const {
    return weight.k == other.weight.k && group == other.group && weight.format.group == other.weight.format.group;
  }

  Weight weight;
  std::size_t group;
  const float* bias;  // padded; null without one
  Activation activation;

 private:
  Buffer arrays_;
  WeightInUse in_use_;
};

// Rows to quantize, or (with `scale`) rows of integers that are quantized already.
struct Rows {
  const void* x = nullptr;
  DType type = DType::kFloat32;
  std::size_t rows = 0, stride = 0;  // elements
  const float* scale = nullptr;      // [rows][groups]; then x is uint8. Not for weights in groups
  const std::int32_t* zero_point = nullptr;
  // What makes the rows from its own x (float32), in place of `x`: each is quantized while it is in the cache. Where `out`
  // is null the normalized rows are kept nowhere. It has no residual.
  const NormRows* norm = nullptr;
};

struct Output {
  void* data = nullptr;
  DType type = DType::kFloat32;
  std::size_t stride = 0;           // elements
  const void* residual = nullptr;   // of the output's type; null: none
  std::size_t residual_stride = 0;
  const Activation* activation = nullptr;  // in the place of the layer's own; null: that one
};

// Layers over one input (Q, K and V): it is quantized once. All take the rows of the first.
// Throws std::bad_alloc before anything is written.
void linear(const Linear* const* layers, std::size_t count, const Rows& in, const Output* outs, int threads);

// act(first) * second, whatever the layers' own activations are, both over one input and of as many columns, in one pass: no more than some columns of `second` are
// ever kept. What is written is float32 and has no residual. Throws std::bad_alloc before anything is written.
void gated_linear(const Linear& first, Activation activation, const Linear& second, const Rows& in, const Output& out, int threads);

// Integers [rows][k] with scale and zero point of each row, or of each group of it.
void quantize_rows(const Rows& in, std::size_t k, std::size_t group, std::uint8_t* q, std::size_t q_stride,
                   float* scale, std::int32_t* zero_point);

}  // namespace octavo
