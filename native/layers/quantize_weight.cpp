#include "layers/quantize_weight.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <type_traits>
#include <vector>

#include "contract/tables.h"
#include "layers/pack.h"
#include "runtime/arena.h"
#include "runtime/parallel.h"

namespace octavo {
namespace {

constexpr std::size_t kChunk = 1 << 17;  // elements: half a megabyte, worth a thread's while
constexpr std::size_t kWide = 4096;       // inputs of 16 rows that wait to be packed: 64 KiB

// A weight as runs of consecutive elements: rows over all channels where the channel axis is the
// last, else one run for each channel. Runs are worked on in chunks of a size that does not depend
// on the number of threads, so that sums over chunks do not either.
struct Runs {
  std::size_t count, length, per_chunk, channels;
  bool each;  // an element of a run belongs to the channel of its place

  explicit Runs(const WeightView& w)
      : count(w.inner == 1 ? w.outer : w.outer * w.channels),
        length(w.inner == 1 ? w.channels : w.inner),
        per_chunk(std::max<std::size_t>(1, kChunk / std::max<std::size_t>(1, length))),
        channels(w.inner == 1 ? 1 : w.channels),
        each(w.inner == 1) {}

  // The channel of a run; 0 for a row over all of them.
  std::size_t channel(std::size_t run) const { return channels == 0 ? 0 : run % channels; }

  std::size_t chunks() const { return (count + per_chunk - 1) / per_chunk; }

  std::size_t threads() const { return static_cast<std::size_t>(threads_ahead_of_time(chunks())); }

  // Calls work(chunk, first run, end, thread) for every chunk, thread < threads().
  template <class Work>
  void for_each(const Work& work) const {
    std::atomic<std::size_t> next{0};
    const std::size_t total = chunks();
    auto loop = [&](int, int thread, int) {
      const FloatMode mode;
      for (std::size_t i = next++; i < total; i = next++)
        work(i, i * per_chunk, std::min(count, (i + 1) * per_chunk), static_cast<std::size_t>(thread));
    };
    parallel(static_cast<int>(threads()), 1, loop);
  }
};

// Each channel's ends of the grid, from its zero point on.
struct GridEnds {
  std::vector<float> lo, hi;
  GridEnds(const Grid& grid, std::size_t channels, const std::int32_t* zero_point) : lo(channels), hi(channels) {
    for (std::size_t c = 0; c < channels; ++c) {
      lo[c] = static_cast<float>(grid.qmin - zero_point[c]);
      hi[c] = static_cast<float>(grid.qmax - zero_point[c]);
    }
  }
};

// Of the parts in their order, whatever thread each was worked on.
WeightStats total(const std::vector<WeightStats>& parts) {
  WeightStats all;
  for (const WeightStats& part : parts) {
    all.signal += part.signal;
    all.noise += part.noise;
  }
  return all;
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
  const Runs runs(w);
  const KernelTable& kernels = table();
  std::atomic<bool> good{true};
  // With one outer index each run is a channel of its own, and threads write to different places.
  const bool apart = w.outer == 1 && !runs.each;
  const std::size_t threads = apart ? 0 : runs.threads(), one = 2 * w.channels;
  std::vector<float> own(threads * one, 0.0f);
  runs.for_each([&](std::size_t, std::size_t begin, std::size_t end, std::size_t thread) {
    float* low = apart ? lo : own.data() + thread * one;
    float* high = apart ? hi : low + w.channels;
    for (std::size_t r = begin; r < end; ++r) {
      const std::size_t c = runs.channel(r);
      if (!kernels.weight_range({w.data + r * runs.length, runs.length, runs.each, low + c, high + c})) good = false;
    }
  });
  for (std::size_t t = 0; t < threads; ++t)
    for (std::size_t c = 0; c < w.channels; ++c) {
      lo[c] = std::min(lo[c], own[t * one + c]);
      hi[c] = std::max(hi[c], own[t * one + w.channels + c]);
    }
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
      const float z = std::nearbyint(std::min(-lo[c] / s, 512.0f));
      zero_point[c] = std::min(std::max(grid.qmin + static_cast<int>(z), grid.qmin), grid.qmax);
    }
  }
}

template <class Q>
WeightStats quantize_channels(const WeightView& w, const Grid& grid, const float* scale,
                              const std::int32_t* zero_point, Q* q) {
  const GridEnds ends(grid, w.channels, zero_point);
  const Runs runs(w);
  const KernelTable& kernels = table();
  std::vector<WeightStats> found(runs.chunks());
  runs.for_each([&](std::size_t chunk, std::size_t begin, std::size_t end, std::size_t) {
    WeightSums sums{};  // not in `found` itself, where threads would write side by side all the time
    for (std::size_t r = begin; r < end; ++r) {
      const std::size_t at = r * runs.length, c = runs.channel(r);
      kernels.quantize_weight({w.data + at, runs.length, runs.each, scale + c, ends.lo.data() + c, ends.hi.data() + c,
                               zero_point + c, std::is_signed<Q>::value, q + at, &sums});
    }
    found[chunk].add(sums);
  });
  return total(found);
}

WeightStats quantize_packed(const float* w, std::size_t n, std::size_t k, const Grid& grid, const float* scale,
                            const std::int32_t* zero_point, std::int8_t* packed) {
  const GridEnds ends(grid, n, zero_point);
  const KernelTable& kernels = table();
  const bool streamed = streams(n, k, packed);
  const std::size_t wide = std::min(round_up(k, kAlign), kWide), row_bytes = packed_bytes(kBlockN, k);
  const int threads = threads_ahead_of_time(std::min(n * k / kChunk, (n + kBlockN - 1) / kBlockN));
  Buffer memory;
  auto* const rows = reinterpret_cast<std::int8_t*>(memory.need(static_cast<std::size_t>(threads) * kBlockN * wide));
  std::vector<WeightStats> found((n + kBlockN - 1) / kBlockN);
  for_each_block(n, threads, streamed, [&](std::size_t first, std::size_t columns, std::size_t thread) {
    const FloatMode mode;
    std::int8_t *q = rows + thread * kBlockN * wide, *to = packed + first / kBlockN * row_bytes;
    WeightSums sums{};
    for (std::size_t i = 0; i < k; i += wide) {
      const std::size_t inputs = std::min(k - i, wide);
      for (std::size_t j = 0; j < columns; ++j) {
        const std::size_t c = first + j;
        kernels.quantize_weight({w + c * k + i, inputs, false, scale + c, ends.lo.data() + c, ends.hi.data() + c,
                                 zero_point + c, true, q + j * wide, &sums});
      }
      pack_block(kernels, q, wide, columns, inputs, to + i * kBlockN, streamed);
    }
    found[first / kBlockN].add(sums);
  });
  return total(found);
}

template WeightStats quantize_channels<std::int8_t>(const WeightView&, const Grid&, const float*,
                                                    const std::int32_t*, std::int8_t*);
template WeightStats quantize_channels<std::uint8_t>(const WeightView&, const Grid&, const float*,
                                                     const std::int32_t*, std::uint8_t*);

}  // namespace octavo
