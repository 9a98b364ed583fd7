#include "layers/round_groups.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "contract/tables.h"
#include "runtime/arena.h"
#include "runtime/parallel.h"

namespace octavo {
namespace {

constexpr std::size_t kChunk = 1 << 15;  // elements worth a thread's while

// Between these, the scales of nearly all of a channel's groups are normal numbers of float16 without help.
constexpr float kLeastStep = 0x1p-11f, kMostStep = 0x1p14f;
// Below, weights are as good as 0: float32 has no number to multiply them by.
constexpr float kNothing = 0x1p-126f;

// A power of two, by which the scales of a channel's groups are taken; `step` is of its outermost weight.
float channel_scale(float step) {
  if ((step >= kLeastStep && step < kMostStep) || step < kNothing) return 1.0f;
  int exponent;
  std::frexp(step, &exponent);
  return std::ldexp(1.0f, exponent - 1);
}

// The weights of a channel, in `wide` where they are not float32.
const float* row(const GroupsWanted& w, const KernelTable& kernels, std::size_t channel, float* wide) {
  if (w.dtype == DType::kFloat32) return static_cast<const float*>(w.w) + channel * w.stride;
  kernels.widen(w.dtype, static_cast<const std::uint16_t*>(w.w) + channel * w.stride, wide, w.k);
  return wide;
}

// What one thread works with: 16 channels at a time.
class Worker {
 public:
  Worker(const GroupsWanted& wanted, const GroupsFound& found, const KernelTable& kernels)
      : w_(wanted), to_(found), kernels_(kernels), groups_(std::max<std::size_t>(1, (w_.k + w_.group - 1) / w_.group)) {
    std::uint8_t* at = memory_.need((2 * w_.group + 5) * kRoundLanes * sizeof(float));
    v_ = reinterpret_cast<float*>(at);
    q_ = reinterpret_cast<std::int32_t*>(v_ + w_.group * kRoundLanes);
    zero_ = v_ + 2 * w_.group * kRoundLanes;
    wide_ = reinterpret_cast<float*>(widened_.need(w_.dtype == DType::kFloat32 ? 0 : kRoundLanes * w_.k * sizeof(float)));
  }

  // Rounds channels first .. first + count; false where one of them holds what is no finite number.
  bool round(std::size_t first, std::size_t count, WeightStats& stats) {
    first_ = first;
    count_ = count;
    for (std::size_t c = 0; c < count; ++c) rows_[c] = row(w_, kernels_, first + c, w_.dtype == DType::kFloat32 ? nullptr : wide_ + c * w_.k);
    if (!scales()) return false;
    for (std::size_t j = 0; j < groups_; ++j) group(j, stats);
    return true;
  }

 private:

  bool scales() {
    for (std::size_t c = 0; c < count_; ++c) {
      float low = 0.0f, high = 0.0f;
      if (!kernels_.weight_range({rows_[c], w_.k, false, &low, &high})) return false;
      const float scale = channel_scale(std::max(high, -low) / static_cast<float>(1 << (w_.bits - 1)));
      to_.channel_scale[first_ + c] = scale;
      inverse_[c] = 1.0f / scale;
    }
    return true;
  }

  void group(std::size_t j, WeightStats& stats) {
    const std::size_t from = j * w_.group, n = std::min(w_.group, w_.k - from);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t c = 0; c < kRoundLanes; ++c)
        v_[i * kRoundLanes + c] = c < count_ ? rows_[c][from + i] * inverse_[c] : 0.0f;
    float *const signal = zero_ + kRoundLanes, *const noise = signal + kRoundLanes;
    auto* const scale = reinterpret_cast<std::uint16_t*>(noise + kRoundLanes);
    kernels_.round_groups({v_, w_.importance + from, n, w_.bits, w_.affine, w_.search, q_, scale, zero_, signal, noise});
    for (std::size_t c = 0; c < count_; ++c) {
      const std::size_t channel = first_ + c, at = channel * groups_ + j;
      const double size = to_.channel_scale[channel];
      stats.signal += signal[c] * size * size;
      stats.noise += noise[c] * size * size;
      to_.scale[at] = scale[c];
      if (to_.zero) to_.zero[at] = static_cast<std::uint8_t>(zero_[c]);
      std::uint8_t* q = to_.q + channel * w_.k + from;
      for (std::size_t i = 0; i < n; ++i) q[i] = static_cast<std::uint8_t>(q_[i * kRoundLanes + c]);
    }
  }

  const GroupsWanted& w_;
  const GroupsFound& to_;
  const KernelTable& kernels_;
  const std::size_t groups_;
  Buffer memory_, widened_;
  float *v_, *zero_, *wide_;
  std::int32_t* q_;
  float inverse_[kRoundLanes];
  const float* rows_[kRoundLanes];
  std::size_t first_ = 0, count_ = 0;
};

// The first channel that holds a NaN or an infinity.
std::ptrdiff_t first_bad(const GroupsWanted& w, const KernelTable& kernels) {
  std::vector<float> wide(w.k);
  for (std::size_t c = 0; c < w.n; ++c) {
    float low = 0.0f, high = 0.0f;
    if (!kernels.weight_range({row(w, kernels, c, wide.data()), w.k, false, &low, &high})) return static_cast<std::ptrdiff_t>(c);
  }
  return -1;
}

}  // namespace

GroupsRounded round_groups(const GroupsWanted& wanted, const GroupsFound& found) {
  const KernelTable& kernels = table();
  const std::size_t blocks = (wanted.n + kRoundLanes - 1) / kRoundLanes;
  const int threads = threads_ahead_of_time(std::min(blocks, wanted.n * wanted.k / kChunk));
  std::vector<WeightStats> stats(blocks);
  std::vector<Worker> workers;
  workers.reserve(static_cast<std::size_t>(threads));
  for (int t = 0; t < threads; ++t) workers.emplace_back(wanted, found, kernels);
  std::atomic<std::size_t> next{0};
  std::atomic<bool> good{true};
  auto loop = [&](int, int thread, int) {
    const FloatMode mode;
    for (std::size_t b = next++; b < blocks && good; b = next++) {
      const std::size_t first = b * kRoundLanes, count = std::min(kRoundLanes, wanted.n - first);
      if (!workers[static_cast<std::size_t>(thread)].round(first, count, stats[b])) good = false;
    }
  };
  parallel(threads, 1, loop);
  GroupsRounded all{};
  for (const WeightStats& part : stats) {  // in their order, whatever thread each was worked on
    all.stats.signal += part.signal;
    all.stats.noise += part.noise;
  }
  all.bad = good ? -1 : first_bad(wanted, kernels);
  return all;
}

}  // namespace octavo
