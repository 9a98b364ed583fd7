// Runs of consecutive weights on their way to integers.
// Plain loops over blocks: each is one that the compiler turns into vectors of its file's width, and
// every lane does what the scalar code says. No std:: function: a copy of one that is not inlined,
// made for this file's instructions, could be the one that the linker keeps for all files.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"

namespace octavo {
namespace {

struct WeightRuns {
  // Weights worked on at a time: few enough for the first cache. Beside the sums in double, GCC 12
  // makes the loop over the quotients four floats wide.
  static constexpr std::size_t kBlock = 256;

  // Adding and subtracting 1.5 * 2^23 rounds half to even in the default rounding mode for
  // |v| < 2^22, and unlike nearbyint it vectorizes on every x86-64. Callers clamp first.
  static float round_half_even(float v) { return (v + 12582912.0f) - 12582912.0f; }

  static float smaller(float a, float b) { return b < a ? b : a; }
  static float larger(float a, float b) { return a < b ? b : a; }

  // Adds the squares of v[0..n), each to the lane of its index.
  static void add_squares(const float* v, std::size_t n, double* lanes) {
    double sum[kWeightLanes];
    for (std::size_t l = 0; l < kWeightLanes; ++l) sum[l] = lanes[l];
    auto one = [&](std::size_t i, std::size_t l) {
      sum[l] += static_cast<double>(v[i]) * static_cast<double>(v[i]);
    };
    std::size_t i = 0;
    for (; i + kWeightLanes <= n; i += kWeightLanes)
      for (std::size_t l = 0; l < kWeightLanes; ++l) one(i + l, l);
    for (; i < n; ++i) one(i, i % kWeightLanes);
    for (std::size_t l = 0; l < kWeightLanes; ++l) lanes[l] = sum[l];
  }

  template <class Q, bool kEach>
  static void run(const WeightRun& r) {
    float error[kBlock];
    Q* const q = static_cast<Q*>(r.q);
    const float scale = *r.scale, lo = *r.lo, hi = *r.hi;
    const std::int32_t zero = *r.zero_point;
    for (std::size_t first = 0, m; first < r.n; first += m) {
      m = r.n - first < kBlock ? r.n - first : kBlock;
      const float* w = r.w + first;
      Q* __restrict to = q + first;
      if constexpr (kEach) {
        const float *scales = r.scale + first, *los = r.lo + first, *his = r.hi + first;
        const std::int32_t* zeros = r.zero_point + first;
        for (std::size_t i = 0; i < m; ++i) {
          const float v = round_half_even(smaller(larger(w[i] / scales[i], los[i]), his[i]));
          error[i] = w[i] - v * scales[i];
          to[i] = static_cast<Q>(static_cast<std::int32_t>(v) + zeros[i]);
        }
      } else {
        for (std::size_t i = 0; i < m; ++i) {
          const float v = round_half_even(smaller(larger(w[i] / scale, lo), hi));
          error[i] = w[i] - v * scale;
          to[i] = static_cast<Q>(static_cast<std::int32_t>(v) + zero);
        }
      }
      add_squares(w, m, r.sums->signal);
      add_squares(error, m, r.sums->noise);
    }
  }

  static void quantize(const WeightRun& r) {
    if (r.n == 0) return;
    if (r.is_signed)
      r.each ? run<std::int8_t, true>(r) : run<std::int8_t, false>(r);
    else
      r.each ? run<std::uint8_t, true>(r) : run<std::uint8_t, false>(r);
  }

  static constexpr float kLargest = 3.40282347e+38f;
  static std::int32_t not_finite(float v) {
    const float size = v < 0 ? -v : v;
    return !(size <= kLargest);
  }

  static bool range(const WeightRange& r) { return r.each ? ranges_of_each(r) : range_of_all(r); }

  static bool ranges_of_each(const WeightRange& r) {
    std::int32_t bad = 0;
    const float* w = r.w;
    float *__restrict lo = r.lo, *__restrict hi = r.hi;
    for (std::size_t i = 0; i < r.n; ++i) {
      bad |= not_finite(w[i]);
      lo[i] = w[i] < lo[i] ? w[i] : lo[i];
      hi[i] = w[i] > hi[i] ? w[i] : hi[i];
    }
    return bad == 0;
  }

  // In lanes, so that no step waits for the one before.
  static bool range_of_all(const WeightRange& r) {
    float lows[kWeightLanes] = {}, highs[kWeightLanes] = {};
    std::int32_t bad[kWeightLanes] = {};
    auto one = [&](float v, std::size_t l) {
      bad[l] |= not_finite(v);
      lows[l] = v < lows[l] ? v : lows[l];
      highs[l] = v > highs[l] ? v : highs[l];
    };
    std::size_t i = 0;
    for (; i + kWeightLanes <= r.n; i += kWeightLanes)
      for (std::size_t l = 0; l < kWeightLanes; ++l) one(r.w[i + l], l);
    for (; i < r.n; ++i) one(r.w[i], i % kWeightLanes);
    std::int32_t any = 0;
    for (std::size_t l = 0; l < kWeightLanes; ++l) {
      *r.lo = lows[l] < *r.lo ? lows[l] : *r.lo;
      *r.hi = highs[l] > *r.hi ? highs[l] : *r.hi;
      any |= bad[l];
    }
    return any == 0;
  }
};

}  // namespace
}  // namespace octavo
