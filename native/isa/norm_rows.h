// Layer normalization of rows. Sums run in 16 lanes whatever the vectors' width, so every instruction set
// adds the same numbers in the same order.
#pragma once

#include <cstddef>

#include "contract/kernels.h"

namespace octavo {
namespace {

template <class V>
struct Norms {
  using F = typename V::F;
  static constexpr std::size_t kWidth = static_cast<std::size_t>(V::kWidth);
  static constexpr std::size_t kLanes = 16, kVectors = kLanes / kWidth;

  // The sum of term(vector of x) over a row; what a row has beyond whole 16 lanes goes one by one.
  template <class Whole, class One>
  static float sum(const float* x, std::size_t n, const Whole& whole, const One& one) {
    F acc[kVectors];
#pragma GCC unroll 16
    for (std::size_t v = 0; v < kVectors; ++v) acc[v] = V::set(0.0f);
    std::size_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
#pragma GCC unroll 16
      for (std::size_t v = 0; v < kVectors; ++v) acc[v] = whole(acc[v], V::load(x + i + v * kWidth));
    alignas(64) float lanes[kLanes];
#pragma GCC unroll 16
    for (std::size_t v = 0; v < kVectors; ++v) V::store(lanes + v * kWidth, acc[v]);
    for (std::size_t lane = 0; i < n; ++i, ++lane) lanes[lane] = one(lanes[lane], x[i]);
    for (std::size_t half = kLanes / 2; half > 0; half /= 2)
      for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    return lanes[0];
  }

  static void row(const float* x, const NormRows& r, float* out) {
    const float count = static_cast<float>(r.columns);
    const float mean =
        sum(x, r.columns, [](F acc, F v) { return V::add(acc, v); }, [](float acc, float v) { return acc + v; }) / count;
    const F center = V::set(mean);
    const float squares = sum(
        x, r.columns,
        [center](F acc, F v) {
          const F d = V::sub(v, center);
          return V::fma(d, d, acc);
        },
        [mean](float acc, float v) {
          const float d = v - mean;
          return __builtin_fmaf(d, d, acc);
        });
    const float inverse = 1.0f / __builtin_sqrtf(squares / count + r.eps);
    const F by = V::set(inverse);
    std::size_t i = 0;
    for (; i + kWidth <= r.columns; i += kWidth) {
      const F d = V::mul(V::sub(V::load(x + i), center), by);
      V::store(out + i, V::fma(d, V::load(r.weight + i), V::load(r.bias + i)));
    }
    for (; i < r.columns; ++i) out[i] = __builtin_fmaf((x[i] - mean) * inverse, r.weight[i], r.bias[i]);
  }

  static void rows(const NormRows& r) {
    for (std::size_t m = 0; m < r.rows; ++m) row(r.x + m * r.stride, r, r.out + m * r.out_stride);
  }
};

}  // namespace
}  // namespace octavo
