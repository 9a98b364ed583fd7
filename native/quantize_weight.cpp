#include "quantize_weight.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <vector>

namespace octavo {
namespace {

// Adding and subtracting 1.5 * 2^23 rounds half to even in the default rounding mode for |v| < 2^22,
// and unlike nearbyint it vectorizes on every x86-64. Callers clamp first.
constexpr float kRound = 12582912.0f;

// Sums run in lanes, so that the compiler may vectorize them without reordering anything, and in
// double: the square of a float above 1e19 or below 1e-19 does not fit into a float.
constexpr std::size_t kLanes = 16;

struct SquareSum {
  double lane[kLanes] = {};
  void add(float v, std::size_t l) { lane[l] += static_cast<double>(v) * static_cast<double>(v); }
  double total() const {
    double sum = 0.0;
    for (double v : lane) sum += v;
    return sum;
  }
};

// One copy a vector width, chosen when the library is loaded. The arithmetic is the same in each:
// the compiler may not contract, and every lane does what the scalar code says.
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define OCTAVO_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define OCTAVO_CLONES
#endif

inline float round_half_even(float v) { return (v + kRound) - kRound; }

// One run of n weights with one scale: the channel's inner elements.
template <class Q>
[[gnu::always_inline]] inline void run_body(const float* w, std::size_t n, float scale, float lo, float hi, std::int32_t zp,
                  Q* q, SquareSum& signal, SquareSum& noise) {
  auto one = [&](std::size_t i, std::size_t lane) {
    const float r = round_half_even(std::min(std::max(w[i] / scale, lo), hi));
    const float e = w[i] - r * scale;
    q[i] = static_cast<Q>(static_cast<std::int32_t>(r) + zp);
    signal.add(w[i], lane);
    noise.add(e, lane);
  };
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::size_t l = 0; l < kLanes; ++l) one(i + l, l);
  for (; i < n; ++i) one(i, i % kLanes);
}

// One row of n weights, each of its own channel: the channel axis is the last.
template <class Q>
[[gnu::always_inline]] inline void row_body(const float* w, std::size_t n, const float* scale, const float* lo,
                  const float* hi, const std::int32_t* zp, Q* q, SquareSum& signal,
                  SquareSum& noise) {
  auto one = [&](std::size_t i, std::size_t lane) {
    const float r = round_half_even(std::min(std::max(w[i] / scale[i], lo[i]), hi[i]));
    const float e = w[i] - r * scale[i];
    q[i] = static_cast<Q>(static_cast<std::int32_t>(r) + zp[i]);
    signal.add(w[i], lane);
    noise.add(e, lane);
  };
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::size_t l = 0; l < kLanes; ++l) one(i + l, l);
  for (; i < n; ++i) one(i, i % kLanes);
}

// The clones cannot be templates: one pair of functions for each integer type.
OCTAVO_CLONES void quantize_run_i8(const float* w, std::size_t n, float scale, float lo, float hi,
                                   std::int32_t zp, std::int8_t* q, SquareSum& s, SquareSum& e) {
  run_body(w, n, scale, lo, hi, zp, q, s, e);
}
OCTAVO_CLONES void quantize_run_u8(const float* w, std::size_t n, float scale, float lo, float hi,
                                   std::int32_t zp, std::uint8_t* q, SquareSum& s, SquareSum& e) {
  run_body(w, n, scale, lo, hi, zp, q, s, e);
}
OCTAVO_CLONES void quantize_row_i8(const float* w, std::size_t n, const float* scale,
                                   const float* lo, const float* hi, const std::int32_t* zp,
                                   std::int8_t* q, SquareSum& s, SquareSum& e) {
  row_body(w, n, scale, lo, hi, zp, q, s, e);
}
OCTAVO_CLONES void quantize_row_u8(const float* w, std::size_t n, const float* scale,
                                   const float* lo, const float* hi, const std::int32_t* zp,
                                   std::uint8_t* q, SquareSum& s, SquareSum& e) {
  row_body(w, n, scale, lo, hi, zp, q, s, e);
}
inline void quantize_run(const float* w, std::size_t n, float scale, float lo, float hi,
                         std::int32_t zp, std::int8_t* q, SquareSum& s, SquareSum& e) {
  quantize_run_i8(w, n, scale, lo, hi, zp, q, s, e);
}
inline void quantize_row(const float* w, std::size_t n, const float* scale, const float* lo,
                         const float* hi, const std::int32_t* zp, std::int8_t* q, SquareSum& s,
                         SquareSum& e) {
  quantize_row_i8(w, n, scale, lo, hi, zp, q, s, e);
}
inline void quantize_run(const float* w, std::size_t n, float scale, float lo, float hi,
                         std::int32_t zp, std::uint8_t* q, SquareSum& s, SquareSum& e) {
  quantize_run_u8(w, n, scale, lo, hi, zp, q, s, e);
}
inline void quantize_row(const float* w, std::size_t n, const float* scale, const float* lo,
                         const float* hi, const std::int32_t* zp, std::uint8_t* q, SquareSum& s,
                         SquareSum& e) {
  quantize_row_u8(w, n, scale, lo, hi, zp, q, s, e);
}

// Widens [lo, hi] by n weights, elementwise or into one pair; returns false on NaN or infinity.
OCTAVO_CLONES bool range_row(const float* w, std::size_t n, float* lo, float* hi) {
  int bad = 0;
  for (std::size_t i = 0; i < n; ++i) {
    bad |= !(std::fabs(w[i]) <= FLT_MAX);
    lo[i] = w[i] < lo[i] ? w[i] : lo[i];
    hi[i] = w[i] > hi[i] ? w[i] : hi[i];
  }
  return bad == 0;
}

// Widens one pair by a run of n weights, in lanes, so that no step waits for the one before.
OCTAVO_CLONES bool range_run(const float* w, std::size_t n, float& lo, float& hi) {
  float lows[kLanes] = {}, highs[kLanes] = {};
  std::int32_t bad[kLanes] = {};
  auto one = [&](float v, std::size_t l) {
    bad[l] |= !(std::fabs(v) <= FLT_MAX);
    lows[l] = v < lows[l] ? v : lows[l];
    highs[l] = v > highs[l] ? v : highs[l];
  };
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::size_t l = 0; l < kLanes; ++l) one(w[i + l], l);
  for (; i < n; ++i) one(w[i], i % kLanes);
  std::int32_t any = 0;
  for (std::size_t l = 0; l < kLanes; ++l) {
    lo = std::min(lo, lows[l]);
    hi = std::max(hi, highs[l]);
    any |= bad[l];
  }
  return any == 0;
}

std::ptrdiff_t first_non_finite_channel(const WeightView& w) {
  std::size_t found = w.channels;
  for (std::size_t o = 0; o < w.outer; ++o)
    for (std::size_t c = 0; c < found; ++c) {
      const float* run = w.data + (o * w.channels + c) * w.inner;
      for (std::size_t i = 0; i < w.inner; ++i)
        if (!std::isfinite(run[i])) {
          found = c;
          break;
        }
    }
  return static_cast<std::ptrdiff_t>(found);
}

}  // namespace

std::ptrdiff_t channel_ranges(const WeightView& w, float* lo, float* hi) {
  std::fill(lo, lo + w.channels, 0.0f);
  std::fill(hi, hi + w.channels, 0.0f);
  bool good = true;
  if (w.inner == 1) {
    for (std::size_t o = 0; o < w.outer; ++o)
      good &= range_row(w.data + o * w.channels, w.channels, lo, hi);
  } else {
    for (std::size_t o = 0; o < w.outer; ++o)
      for (std::size_t c = 0; c < w.channels; ++c)
        good &= range_run(w.data + (o * w.channels + c) * w.inner, w.inner, lo[c], hi[c]);
  }
  return good ? -1 : first_non_finite_channel(w);
}

void channel_qparams(const float* lo, const float* hi, std::size_t channels, const Grid& grid,
                     float* scale, std::int32_t* zero_point) {
  for (std::size_t c = 0; c < channels; ++c) {
    float s;
    if (grid.symmetric) {
      // 2 * max(|lo|, |hi|) / (qmax - qmin), without overflow: for -127..127 it is max|w| / 127.
      const float half = static_cast<float>(grid.qmax - grid.qmin) / 2.0f;
      s = std::max(-lo[c], hi[c]) / half;
    } else {
      const float steps = static_cast<float>(grid.qmax - grid.qmin);
      s = hi[c] / steps - lo[c] / steps;
    }
    // An all-zero channel, or one so small that its scale underflows, is held as zeros.
    if (!(s > 0.0f)) s = 1.0f;
    scale[c] = s;
    if (grid.symmetric) {
      zero_point[c] = grid.zero_point;
    } else {
      const float z = round_half_even(std::min(-lo[c] / s, 512.0f));
      zero_point[c] = std::min(std::max(grid.qmin + static_cast<int>(z), grid.qmin), grid.qmax);
    }
  }
}

template <class Q>
WeightStats quantize_channels(const WeightView& w, const Grid& grid, const float* scale,
                              const std::int32_t* zero_point, Q* q) {
  SquareSum signal, noise;
  std::vector<float> lo(w.channels), hi(w.channels);
  for (std::size_t c = 0; c < w.channels; ++c) {
    lo[c] = static_cast<float>(grid.qmin - zero_point[c]);
    hi[c] = static_cast<float>(grid.qmax - zero_point[c]);
  }
  for (std::size_t o = 0; o < w.outer; ++o) {
    const std::size_t row = o * w.channels * w.inner;
    if (w.inner == 1) {
      quantize_row(w.data + row, w.channels, scale, lo.data(), hi.data(), zero_point, q + row,
                   signal, noise);
      continue;
    }
    for (std::size_t c = 0; c < w.channels; ++c) {
      const std::size_t at = row + c * w.inner;
      quantize_run(w.data + at, w.inner, scale[c], lo[c], hi[c], zero_point[c], q + at, signal,
                   noise);
    }
  }
  return {signal.total(), noise.total()};
}

template WeightStats quantize_channels<std::int8_t>(const WeightView&, const Grid&, const float*,
                                                    const std::int32_t*, std::int8_t*);
template WeightStats quantize_channels<std::uint8_t>(const WeightView&, const Grid&, const float*,
                                                     const std::int32_t*, std::uint8_t*);

}  // namespace octavo
