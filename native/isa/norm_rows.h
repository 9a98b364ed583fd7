// Normalization of rows. Sums run in 16 lanes whatever the vectors' width, so every instruction set adds the
// same numbers in the same order.
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

  static float total(const float* x, std::size_t n) {
    return sum(x, n, [](F acc, F v) { return V::add(acc, v); }, [](float acc, float v) { return acc + v; });
  }

  static float squares(const float* x, std::size_t n, float mean) {
    const F center = V::set(mean);
    return sum(
        x, n,
        [center](F acc, F v) {
          const F d = V::sub(v, center);
          return V::fma(d, d, acc);
        },
        [mean](float acc, float v) {
          const float d = v - mean;
          return __builtin_fmaf(d, d, acc);
        });
  }

  static void add(const float* x, const float* y, std::size_t n, float* to) {
    std::size_t i = 0;
    for (; i + kWidth <= n; i += kWidth) V::store(to + i, V::add(V::load(x + i), V::load(y + i)));
    for (; i < n; ++i) to[i] = x[i] + y[i];
  }

  // out = fma((x - mean) * inverse, weight, bias); subtracting a mean of 0 changes nothing.
  template <bool has_weight, bool has_bias>
  static void scale(const float* x, const NormRows& r, float mean, float inverse, float* out) {
    const F center = V::set(mean), by = V::set(inverse);
    std::size_t i = 0;
    for (; i + kWidth <= r.columns; i += kWidth) {
      const F d = V::mul(V::sub(V::load(x + i), center), by);
      const F weight = has_weight ? V::load(r.weight + i) : V::set(1.0f), bias = has_bias ? V::load(r.bias + i) : V::set(0.0f);
      V::store(out + i, V::fma(d, weight, bias));
    }
    for (; i < r.columns; ++i) out[i] = __builtin_fmaf((x[i] - mean) * inverse, has_weight ? r.weight[i] : 1.0f, has_bias ? r.bias[i] : 0.0f);
  }

  static void row(const float* x, const NormRows& r, float* out) {
    const float count = static_cast<float>(r.columns);
    const float mean = r.kind == Norm::kLayer ? total(x, r.columns) / count : 0.0f;
    const float inverse = 1.0f / __builtin_sqrtf(squares(x, r.columns, mean) / count + r.eps);
    if (r.weight) return r.bias ? scale<true, true>(x, r, mean, inverse, out) : scale<true, false>(x, r, mean, inverse, out);
    r.bias ? scale<false, true>(x, r, mean, inverse, out) : scale<false, false>(x, r, mean, inverse, out);
  }

  static void rows(const NormRows& r) {
    for (std::size_t m = 0; m < r.rows; ++m) {
      const float* x = r.x + m * r.stride;
      float* out = r.out + m * r.out_stride;
      if (r.residual) {
        float* sum = r.sum ? r.sum + m * r.sum_stride : out;
        add(x, r.residual + m * r.residual_stride, r.columns, sum);
        x = sum;
      }
      row(x, r, out);
    }
  }
};

}  // namespace
}  // namespace octavo
