// Linear layers whose weights are float16 or bfloat16 and whose arithmetic is float32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"
#include "layers/linear.h"
#include "runtime/arena.h"

namespace octavo {

// Elements of a packed weight: blocks [ceil(n/16)][k][16], zero padded.
std::size_t half_packed_size(std::size_t n, std::size_t k);
// From rows w [n, k] of 16-bit elements, and back.
void half_pack(const std::uint16_t* w, std::size_t n, std::size_t k, std::uint16_t* packed);
void half_unpack(const std::uint16_t* packed, std::size_t n, std::size_t k, std::uint16_t* w);

class HalfLinear {
 public:
  // bias [n] or null. The packed data must outlive the layer and be aligned to kAlign.
  HalfLinear(const std::uint16_t* packed, DType type, std::size_t n, std::size_t k, const float* bias,
             Activation activation);

  const std::uint16_t* weight;
  DType type;
  std::size_t n, k;
  const float* bias;  // padded to a multiple of 16, 0 without one
  Activation activation;

 private:
  Buffer arrays_;
};

// Rows of any DType in and out (`in.scale` is null). Throws std::bad_alloc before anything is written.
void half_linear(const HalfLinear& layer, const Rows& in, const Output& out, int threads);

}  // namespace octavo
