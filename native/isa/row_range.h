// The ranges of rows, over any vector type of vector_*.h.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"
#include "contract/row_scale.h"

namespace octavo {
namespace {

// The range of n values.
template <class V>
struct RowRange {
  using F = typename V::F;
  using I = typename V::I;

  static RowScale scale(const float* x, std::size_t n) { return RowScale::from(seen(x, n)); }

  static ValueRange seen(const float* x, std::size_t n) {
    const Partial p = partial(x, n);
    const std::int32_t hi = V::highest(p.hi);
    const std::uint32_t lo = V::highest_unsigned(p.lo);
    return {float_of(lo) + 0.0f, float_of(static_cast<std::uint32_t>(hi)), hi < kInfinity && lo < kMinusInfinity};
  }

  // A lane's part of the values, by their bits: among integers with a sign the largest is the largest float,
  // and among those without one it is the lowest, or -0. Infinity and NaN lie beyond all numbers of their sign.
  static constexpr std::int32_t kInfinity = 0x7f800000;
  static constexpr std::uint32_t kMinusInfinity = 0xff800000u;
  struct Partial {
    I hi = V::set_i(0), lo = V::set_i(INT32_MIN);
    void see(F x) {
      const I b = V::once(V::bits(x));
      see(b, b);
    }
    void see(const Partial& p) { see(p.hi, p.lo); }
    void see(I high, I low) {
      hi = V::max_i(high, hi);
      lo = V::max_unsigned(low, lo);
    }
  };
  static inline __attribute__((always_inline)) Partial partial(const float* x, std::size_t n) {
    Partial p[4];
    constexpr std::size_t w = V::kWidth;
    std::size_t i = 0;
    for (; i + 4 * w <= n; i += 4 * w) {  // four at once hide the latency
      p[0].see(V::load(x + i));
      p[1].see(V::load(x + i + w));
      p[2].see(V::load(x + i + 2 * w));
      p[3].see(V::load(x + i + 3 * w));
    }
    for (; i + w <= n; i += w) p[0].see(V::load(x + i));
    if (i < n) p[1].see(V::load_n(x + i, static_cast<int>(n - i)));
    p[0].see(p[1]);
    p[2].see(p[3]);
    p[0].see(p[2]);
    return p[0];
  }

 private:
  static float float_of(std::uint32_t bits) {
    float x;
    __builtin_memcpy(&x, &bits, 4);
    return x;
  }
};

}  // namespace
}  // namespace octavo
