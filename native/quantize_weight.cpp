#include "quantize_weight.h"

#include <algorithm>
#include <atomic>
#include <cfloat>
#include <cmath>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "arena.h"

namespace octavo {
namespace {

// Adding and subtracting 1.5 * 2^23 rounds half to even in the default rounding mode for |v| < 2^22,
// and unlike nearbyint it vectorizes on every x86-64. Callers clamp first.
constexpr float kRound = 12582912.0f;

// Sums run in lanes, so that the compiler may vectorize them without reordering anything, and in
// double: the square of a float above 1e19 or below 1e-19 does not fit into a float.
constexpr std::size_t kLanes = 16;

constexpr std::size_t kChunk = 1 << 17;  // elements: half a megabyte, worth a thread's while
constexpr std::size_t kMaxThreads = 8;

// Weights worked on at a time: few enough for the first cache, and one plain loop a step, which the
// compiler turns into vectors as wide as they come. Beside the sums in double, GCC 12 makes them
// four floats wide.
constexpr std::size_t kBlock = 256;

struct SquareSum {
  double lane[kLanes] = {};
  // Adds the squares of v[0..n), each to the lane of its index.
  [[gnu::always_inline]] void add(const float* v, std::size_t n) {
    double sum[kLanes];
    std::copy(lane, lane + kLanes, sum);
    auto one = [&](std::size_t i, std::size_t l) {
      sum[l] += static_cast<double>(v[i]) * static_cast<double>(v[i]);
    };
    std::size_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
      for (std::size_t l = 0; l < kLanes; ++l) one(i + l, l);
    for (; i < n; ++i) one(i, i % kLanes);
    std::copy(sum, sum + kLanes, lane);
  }
  double total() const {
    double sum = 0.0;
    for (double v : lane) sum += v;
    return sum;
  }
};

// What a chunk sums up.
struct Sums {
  SquareSum signal, noise;
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
[[gnu::always_inline]] inline void run_body(const float* w, std::size_t n, float scale, float lo,
                                            float hi, std::int32_t zp, Q* __restrict q,
                                            Sums& sums) {
  float error[kBlock];
  for (std::size_t m; n > 0; w += m, q += m, n -= m) {
    m = std::min(n, kBlock);
    for (std::size_t i = 0; i < m; ++i) {
      const float r = round_half_even(std::min(std::max(w[i] / scale, lo), hi));
      error[i] = w[i] - r * scale;
      q[i] = static_cast<Q>(static_cast<std::int32_t>(r) + zp);
    }
    sums.signal.add(w, m);
    sums.noise.add(error, m);
  }
}

// One row of n weights, each of its own channel: the channel axis is the last.
template <class Q>
[[gnu::always_inline]] inline void row_body(const float* w, std::size_t n, const float* scale,
                                            const float* lo, const float* hi,
                                            const std::int32_t* zp, Q* __restrict q, Sums& sums) {
  float error[kBlock];
  for (std::size_t m; n > 0; w += m, scale += m, lo += m, hi += m, zp += m, q += m, n -= m) {
    m = std::min(n, kBlock);
    for (std::size_t i = 0; i < m; ++i) {
      const float r = round_half_even(std::min(std::max(w[i] / scale[i], lo[i]), hi[i]));
      error[i] = w[i] - r * scale[i];
      q[i] = static_cast<Q>(static_cast<std::int32_t>(r) + zp[i]);
    }
    sums.signal.add(w, m);
    sums.noise.add(error, m);
  }
}

// The clones cannot be templates: one pair of functions for each integer type.
OCTAVO_CLONES void quantize_run_i8(const float* w, std::size_t n, float scale, float lo, float hi,
                                   std::int32_t zp, std::int8_t* q, Sums& sums) {
  run_body(w, n, scale, lo, hi, zp, q, sums);
}
OCTAVO_CLONES void quantize_run_u8(const float* w, std::size_t n, float scale, float lo, float hi,
                                   std::int32_t zp, std::uint8_t* q, Sums& sums) {
  run_body(w, n, scale, lo, hi, zp, q, sums);
}
OCTAVO_CLONES void quantize_row_i8(const float* w, std::size_t n, const float* scale,
                                   const float* lo, const float* hi, const std::int32_t* zp,
                                   std::int8_t* q, Sums& sums) {
  row_body(w, n, scale, lo, hi, zp, q, sums);
}
OCTAVO_CLONES void quantize_row_u8(const float* w, std::size_t n, const float* scale,
                                   const float* lo, const float* hi, const std::int32_t* zp,
                                   std::uint8_t* q, Sums& sums) {
  row_body(w, n, scale, lo, hi, zp, q, sums);
}
inline void quantize_run(const float* w, std::size_t n, float scale, float lo, float hi,
                         std::int32_t zp, std::int8_t* q, Sums& sums) {
  quantize_run_i8(w, n, scale, lo, hi, zp, q, sums);
}
inline void quantize_row(const float* w, std::size_t n, const float* scale, const float* lo,
                         const float* hi, const std::int32_t* zp, std::int8_t* q, Sums& sums) {
  quantize_row_i8(w, n, scale, lo, hi, zp, q, sums);
}
inline void quantize_run(const float* w, std::size_t n, float scale, float lo, float hi,
                         std::int32_t zp, std::uint8_t* q, Sums& sums) {
  quantize_run_u8(w, n, scale, lo, hi, zp, q, sums);
}
inline void quantize_row(const float* w, std::size_t n, const float* scale, const float* lo,
                         const float* hi, const std::int32_t* zp, std::uint8_t* q, Sums& sums) {
  quantize_row_u8(w, n, scale, lo, hi, zp, q, sums);
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

// A weight as runs of consecutive elements: rows over all channels where the channel axis is the
// last, else one run for each channel. Runs are worked on in chunks of a size that does not depend
// on the number of threads, so that sums over chunks do not either.
struct Runs {
  std::size_t count, length, per_chunk, channels;

  explicit Runs(const WeightView& w)
      : count(w.inner == 1 ? w.outer : w.outer * w.channels),
        length(w.inner == 1 ? w.channels : w.inner),
        per_chunk(std::max<std::size_t>(1, kChunk / std::max<std::size_t>(1, length))),
        channels(w.inner == 1 ? 1 : w.channels) {}

  // The channel of a run; 0 for a row over all of them.
  std::size_t channel(std::size_t run) const { return channels == 0 ? 0 : run % channels; }

  std::size_t chunks() const { return (count + per_chunk - 1) / per_chunk; }

  // Calls work(chunk, first run, end) for every chunk, on as many threads as are worth it.
  template <class Work>
  void for_each(const Work& work) const {
    std::atomic<std::size_t> next{0};
    const std::size_t total = chunks();
    auto loop = [&] {
      const FloatMode mode;
      for (std::size_t i = next++; i < total; i = next++)
        work(i, i * per_chunk, std::min(count, (i + 1) * per_chunk));
    };
    const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
    std::vector<std::thread> helpers;
    try {
      for (std::size_t t = 1; t < std::min({cores, total, kMaxThreads}); ++t) helpers.emplace_back(loop);
    } catch (const std::exception&) {  // no more threads or memory: those that are there do it all
    }
    loop();
    for (auto& helper : helpers) helper.join();
  }
};

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
  const Runs runs(w);
  std::atomic<bool> good{true};
  std::mutex merging;
  // With one outer index each run is a channel of its own, and threads write to different places.
  const bool apart = w.outer == 1 && w.inner != 1;
  runs.for_each([&](std::size_t, std::size_t begin, std::size_t end) {
    std::vector<float> own(apart ? 0 : 2 * w.channels, 0.0f);
    float* low = apart ? lo : own.data();
    float* high = apart ? hi : own.data() + w.channels;
    for (std::size_t r = begin; r < end; ++r) {
      const float* run = w.data + r * runs.length;
      const std::size_t c = runs.channel(r);
      const bool finite = w.inner == 1 ? range_row(run, runs.length, low, high)
                                       : range_run(run, runs.length, low[c], high[c]);
      if (!finite) good = false;
    }
    if (apart) return;
    const std::lock_guard<std::mutex> lock(merging);  // minima and maxima come in any order
    for (std::size_t c = 0; c < w.channels; ++c) {
      lo[c] = std::min(lo[c], low[c]);
      hi[c] = std::max(hi[c], high[c]);
    }
  });
  return good ? -1 : first_non_finite_channel(w);
}

void channel_qparams(const float* lo, const float* hi, std::size_t channels, const Grid& grid,
                     float* scale, std::int32_t* zero_point) {
  const FloatMode mode;
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
  std::vector<float> lo(w.channels), hi(w.channels);
  for (std::size_t c = 0; c < w.channels; ++c) {
    lo[c] = static_cast<float>(grid.qmin - zero_point[c]);
    hi[c] = static_cast<float>(grid.qmax - zero_point[c]);
  }
  const Runs runs(w);
  std::vector<WeightStats> found(runs.chunks());
  runs.for_each([&](std::size_t chunk, std::size_t begin, std::size_t end) {
    Sums sums;  // not in `found` itself, where threads would write side by side all the time
    for (std::size_t r = begin; r < end; ++r) {
      const std::size_t at = r * runs.length, c = runs.channel(r);
      if (w.inner == 1)
        quantize_row(w.data + at, runs.length, scale, lo.data(), hi.data(), zero_point, q + at,
                     sums);
      else
        quantize_run(w.data + at, runs.length, scale[c], lo[c], hi[c], zero_point[c], q + at, sums);
    }
    found[chunk] = {sums.signal.total(), sums.noise.total()};
  });
  WeightStats stats;
  for (const WeightStats& part : found) {
    stats.signal += part.signal;
    stats.noise += part.noise;
  }
  return stats;
}

template WeightStats quantize_channels<std::int8_t>(const WeightView&, const Grid&, const float*,
                                                    const std::int32_t*, std::int8_t*);
template WeightStats quantize_channels<std::uint8_t>(const WeightView&, const Grid&, const float*,
                                                     const std::int32_t*, std::uint8_t*);

}  // namespace octavo
