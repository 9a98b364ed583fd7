// Scale and zero point of a row of activations, from its range: the definition in docs/numbers.md.
// In an anonymous namespace, so that no copy made for one instruction set is another's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"

namespace octavo {
namespace {

struct RowScale {
  float scale, inverse;
  std::int32_t zero_point;

  // Of a range that includes 0.
  static RowScale from(float lo, float hi) {
    float scale = hi / 255.0f - lo / 255.0f;
    if (scale < 1e-30f) scale = 1.0f;
    const float inverse = 1.0f / scale;
    const float z = __builtin_rintf(-lo * inverse);
    return {scale, inverse, static_cast<std::int32_t>(z > 255.0f ? 255.0f : z)};
  }
  // A NaN or an infinity gives scale NaN and integers 0.
  static RowScale from(const ValueRange& r) {
    if (!r.finite) return {__builtin_nanf(""), 0.0f, 0};
    return from(r.lo, r.hi);
  }

  bool finite() const { return scale == scale; }
};

inline std::int32_t zero_pair(std::int32_t z) { return int16_pair(z, z * 128); }

// Of zero point z. A group's sum, of 128 differences of uint8, fits int16.
inline RowQuant row_quant(float scale, std::int32_t z, std::int32_t sum, std::size_t group, std::int32_t extra = 0) {
  return {scale, group ? int16_pair(z, -sum) : zero_pair(z), sum, extra};
}

}  // namespace
}  // namespace octavo
