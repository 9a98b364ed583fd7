// Weight quantization, ahead of time. The definition is in docs/numbers.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"

namespace octavo {

// A weight seen as [outer, channels, inner] around its channel axis, contiguous float32.
struct WeightView {
  const float* data;
  std::size_t outer;
  std::size_t channels;
  std::size_t inner;
};

// The integer grid: representable values, and whether zero sits at a fixed place (symmetric).
struct Grid {
  int qmin;
  int qmax;
  bool symmetric;
  int zero_point;  // symmetric only: 0 for int8, 128 for uint8
};

struct WeightStats {
  double signal = 0.0;  // sum of w^2
  double noise = 0.0;   // sum of (w - dequantized w)^2

  void add(const WeightSums& lanes) {
    for (std::size_t l = 0; l < kWeightLanes; ++l) {
      signal += lanes.signal[l];
      noise += lanes.noise[l];
    }
  }
};

// First channel that holds a NaN or an infinity, or -1. Fills lo[c] <= 0 <= hi[c].
std::ptrdiff_t channel_ranges(const WeightView& w, float* lo, float* hi);

// Scale and zero point of each channel from its range; ranges already include zero.
void channel_qparams(const float* lo, const float* hi, std::size_t channels, const Grid& grid,
                     float* scale, std::int32_t* zero_point);

// q = clamp(round_half_even(w / scale) + zero_point, qmin, qmax). Q is int8_t or uint8_t.
template <class Q>
WeightStats quantize_channels(const WeightView& w, const Grid& grid, const float* scale,
                              const std::int32_t* zero_point, Q* q);

// The same of a weight [n, k] with n channels, to int8 and packed (pack.h): it is read once, and its integers
// are nowhere else.
WeightStats quantize_packed(const float* w, std::size_t n, std::size_t k, const Grid& grid, const float* scale,
                            const std::int32_t* zero_point, std::int8_t* packed);

extern template WeightStats quantize_channels<std::int8_t>(const WeightView&, const Grid&,
                                                           const float*, const std::int32_t*,
                                                           std::int8_t*);
extern template WeightStats quantize_channels<std::uint8_t>(const WeightView&, const Grid&,
                                                            const float*, const std::int32_t*,
                                                            std::uint8_t*);

}  // namespace octavo
