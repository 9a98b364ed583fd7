// Rotary positions, over any vector type of vector_*.h.
#pragma once

#include <cstddef>

#include "contract/kernels.h"

namespace octavo {
namespace {

template <class V>
struct Rotaries {
  using F = typename V::F;
  static constexpr std::size_t kWidth = static_cast<std::size_t>(V::kWidth);

  // Pairs (x[i], x[half + i]); cosines and sines of the second ones lie `second` elements behind those of the first.
  static void halves(const float* x, std::size_t half, const float* cos, const float* sin, std::size_t second, float* out) {
    for (std::size_t i = 0; i < half; i += kWidth) {
      const int n = half - i < kWidth ? static_cast<int>(half - i) : V::kWidth;
      const F a = V::load_n(x + i, n), b = V::load_n(x + half + i, n);
      const F turned = V::mul(b, V::load_n(sin + i, n));
      V::store_n(out + i, V::fma(a, V::load_n(cos + i, n), V::sub(V::set(-0.0f), turned)), n);
      const F back = V::mul(a, V::load_n(sin + second + i, n));
      V::store_n(out + half + i, V::fma(b, V::load_n(cos + second + i, n), back), n);
    }
  }

  // Pairs (x[i], x[i + 1]).
  template <bool each>
  static void neighbours(const float* x, std::size_t turned, const float* cos, const float* sin, float* out) {
    for (std::size_t i = 0; i < turned; i += 2) {
      const float a = x[i], b = x[i + 1];
      const std::size_t first = each ? i : i / 2, second = each ? i + 1 : first;
      out[i] = __builtin_fmaf(a, cos[first], -(b * sin[first]));
      out[i + 1] = __builtin_fmaf(b, cos[second], a * sin[second]);
    }
  }

  static void rows(const RotaryRows& r) {
    const std::size_t half = r.turned / 2;
    for (std::size_t m = 0; m < r.rows; ++m) {
      const float* x = r.x + m * r.step;
      float* out = r.out + m * r.out_step;
      if (!r.interleaved) halves(x, half, r.cos, r.sin, r.each ? half : 0, out);
      else if (r.each) neighbours<true>(x, r.turned, r.cos, r.sin, out);
      else neighbours<false>(x, r.turned, r.cos, r.sin, out);
      if (x == out) continue;
      for (std::size_t i = r.turned; i < r.width; ++i) out[i] = x[i];
    }
  }
};

}  // namespace
}  // namespace octavo
