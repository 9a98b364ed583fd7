// Weights to integers in groups: the search for scales and zero points. docs/numbers.md has the definition.
// docs/notes/rounding.md: "A lane is a group"
// Each lane works on a group of its own, so that every sum is one chain in ascending inputs on every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"

namespace octavo {
namespace {

template <class V>
struct GroupRounding {
  using F = typename V::F;
  static constexpr std::size_t kWidth = static_cast<std::size_t>(V::kWidth);

  // Candidates of symmetric groups: steps from zero to the outermost weight, less those that there are.
  static constexpr float kSteps[] = {-1.25f, -1.0f, -0.75f, -0.5f, -0.25f, 0.0f, 0.25f, 0.5f, 0.75f, 1.0f};
  // Of affine ones: zero points beside that of the range, and steps from end to end over those that there are.
  static constexpr float kShifts[] = {-1.0f, 0.0f, 1.0f};
  static constexpr float kParts[] = {0.9f, 0.95f, 1.0f, 1.05f, 1.1f, 1.15f, 1.2f, 1.3f};
  static constexpr float kLargest = 3.40282347e+38f;
  static constexpr int kRefinements = 2;

  struct Group {
    const float* v;  // kRoundLanes apart
    const float* importance;
    std::size_t n;
    F weight(std::size_t i) const { return V::load(v + i * kRoundLanes); }
    F times(std::size_t i, F x) const { return V::mul(V::set(importance[i]), x); }
  };

  // The integers a group may take, zero point subtracted.
  struct Limits {
    F low, high;
    F steps(F x) const { return V::min(V::max(V::nearest(x), low), high); }
  };

  struct Found {
    Limits limits;
    F scale, error;
  };

  // The scale of least error for the integers at 1 / inverse, and by how much less than all zeros the error is.
  struct Fit {
    F scale, gain;
  };
  static Fit fit(const Group& g, F inverse, const Limits& limits) {
    F a = V::set(0.0f), b = V::set(0.0f);
    for (std::size_t i = 0; i < g.n; ++i) {
      const F w = g.weight(i), q = limits.steps(V::mul(w, inverse)), hq = g.times(i, q);
      a = V::fma(hq, w, a);
      b = V::fma(hq, q, b);
    }
    const F scale = V::div(a, b);
    return {scale, V::mul(a, scale)};
  }

  // As it is stored: float16, and 1 where that is 0 or no number.
  static F stored(F scale) {
    std::uint16_t half[kWidth];
    V::store_f16(half, scale);
    const F x = V::load_f16(half);
    return V::select(V::less(V::set(0.0f), V::abs(x)), x, V::set(1.0f));
  }

  // Tries a scale as it is stored: takes it where its error is less; returns the scale that fits its integers best.
  static F offer(const Group& g, F wanted, const Limits& limits, Found& best) {
    const F scale = stored(wanted), inverse = V::div(V::set(1.0f), scale);
    F a = V::set(0.0f), b = V::set(0.0f), error = V::set(0.0f);
    for (std::size_t i = 0; i < g.n; ++i) {
      const F w = g.weight(i), q = limits.steps(V::mul(w, inverse)), hq = g.times(i, q);
      const F off = V::fma(V::sub(V::set(0.0f), q), scale, w);
      a = V::fma(hq, w, a);
      b = V::fma(hq, q, b);
      error = V::fma(g.times(i, off), off, error);
    }
    const auto better = V::less(error, best.error);
    best.scale = V::select(better, scale, best.scale);
    best.error = V::select(better, error, best.error);
    best.limits.low = V::select(better, limits.low, best.limits.low);
    best.limits.high = V::select(better, limits.high, best.limits.high);
    return V::div(a, b);
  }

  // The fit that gains most among candidates, then its integers and scale in turns.
  struct Search {
    const Group& g;
    Limits limits;
    F scale, gain;

    explicit Search(const Group& group, const Found& plain)
        : g(group), limits(plain.limits), scale(plain.scale), gain(V::set(0.0f)) {}

    void candidate(F inverse, const Limits& at) {
      const Fit found = fit(g, inverse, at);
      const auto better = V::less(gain, found.gain);
      gain = V::select(better, found.gain, gain);
      scale = V::select(better, found.scale, scale);
      limits.low = V::select(better, at.low, limits.low);
      limits.high = V::select(better, at.high, limits.high);
    }

    void refine(Found& best) {
      for (int turn = 0; turn < kRefinements; ++turn) scale = offer(g, scale, limits, best);
    }
  };

  struct Range {
    F low, high;
  };
  static Range range(const Group& g) {
    Range r{V::set(0.0f), V::set(0.0f)};
    for (std::size_t i = 0; i < g.n; ++i) {
      r.low = V::min(g.weight(i), r.low);
      r.high = V::max(g.weight(i), r.high);
    }
    return r;
  }

  // Zero point in the middle: -8..7, or with a scale below zero -7..8 of its size.
  static Found symmetric(const Group& g, const Range& r, float half, bool search) {
    const F zero = V::set(0.0f), size = V::max(r.high, V::sub(zero, r.low)), more = V::set(half), less = V::set(half - 1.0f);
    Found best{{V::sub(zero, more), less}, V::set(1.0f), V::set(kLargest)};
    offer(g, V::div(size, less), best.limits, best);
    if (!search) return best;
    const auto up = V::less(V::sub(zero, r.low), r.high);  // the outermost weight is above zero
    const F down_side = V::select(up, less, more), up_side = V::select(up, more, less);
    const Limits wide{V::sub(zero, down_side), up_side}, narrow{V::sub(zero, up_side), down_side};
    Search found(g, best);
    for (const float shift : kSteps) {
      found.candidate(V::div(V::set(half + shift), size), wide);
      found.candidate(V::div(V::set(half - 1.0f + shift), size), narrow);
    }
    found.refine(best);
    return best;
  }

  static Found affine(const Group& g, const Range& r, float most, bool search) {
    const F zero = V::set(0.0f), all = V::set(most), span = V::sub(r.high, r.low);
    const F ratio = V::div(V::mul(V::sub(zero, r.low), all), span);
    const F middle = V::min(V::max(V::nearest(ratio), zero), all);
    Found best{{V::sub(zero, middle), V::sub(all, middle)}, V::set(1.0f), V::set(kLargest)};
    offer(g, V::div(span, all), best.limits, best);
    if (!search) return best;
    Search found(g, best);
    for (const float shift : kShifts) {
      const F z = V::min(V::max(V::add(middle, V::set(shift)), zero), all), rest = V::sub(all, z);
      const Limits limits{V::sub(zero, z), rest};
      for (const float part : kParts) {
        found.candidate(V::mul(V::div(all, span), V::set(part)), limits);
      }
    }
    found.refine(best);
    return best;
  }

  static void round(const RoundGroups& r) {
    for (std::size_t lane = 0; lane < kRoundLanes; lane += kWidth) lanes(r, lane);
  }

  static void lanes(const RoundGroups& r, std::size_t lane) {
    const Group g{r.v + lane, r.importance, r.n};
    const float half = static_cast<float>(1 << (r.bits - 1)), most = 2.0f * half - 1.0f;
    const Range ends = range(g);
    const Found best = r.affine ? affine(g, ends, most, r.search) : symmetric(g, ends, half, r.search);
    finish(r, lane, g, best, half);
  }

  static void finish(const RoundGroups& r, std::size_t lane, const Group& g, const Found& best, float half) {
    const F zero = V::set(0.0f);
    const F inverse = V::div(V::set(1.0f), best.scale);
    // Symmetric, -7..8: the scale changes its sign, and every integer with it.
    const auto straight = V::less(best.limits.low, V::set(r.affine ? -kLargest : 0.5f - half));
    const F sign = r.affine ? V::set(1.0f) : V::select(straight, V::set(1.0f), V::set(-1.0f));
    const F z = r.affine ? V::sub(zero, best.limits.low) : V::set(half);
    F signal = zero, noise = zero;
    for (std::size_t i = 0; i < g.n; ++i) {
      const F w = g.weight(i), q = best.limits.steps(V::mul(w, inverse));
      const F off = V::fma(V::sub(zero, q), best.scale, w);
      signal = V::fma(w, w, signal);
      noise = V::fma(off, off, noise);
      V::store_i(r.q + i * kRoundLanes + lane, V::round(V::fma(q, sign, z)));
    }
    V::store_f16(r.scale + lane, V::mul(best.scale, sign));
    V::store(r.zero + lane, z);
    V::store(r.signal + lane, signal);
    V::store(r.noise + lane, noise);
  }
};

}  // namespace
}  // namespace octavo
