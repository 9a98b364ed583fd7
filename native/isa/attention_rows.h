// Scaled dot-product attention for a few queries and a chunk of keys, at the speed of memory: each row of K and V is
// read once for all queries that share it. Sums over inputs and over keys run in 16 lanes whatever the vectors'
// width, so every instruction set adds the same numbers in the same order.
#pragma once

#include <cstddef>

#include "contract/kernels.h"
#include "isa/activations.h"
#include "isa/attention_weights.h"

namespace octavo {
namespace {

template <class V>
struct RowAttention {
  using F = typename V::F;
  static constexpr std::size_t kWidth = static_cast<std::size_t>(V::kWidth);
  static constexpr std::size_t kLanes = 16, kVectors = kLanes / kWidth;
  static constexpr std::size_t kSums = static_cast<std::size_t>(V::kSums);
  static constexpr std::size_t kAhead = 16;  // rows that are asked for before they are needed

  static std::size_t score_stride(const AttentionRows& a) { return round_up(a.keys, kLanes); }
  static float* result(AttentionPart* part) { return reinterpret_cast<float*>(part + 1); }
  static AttentionPart* part(const AttentionRows& a, std::size_t column) {
    return reinterpret_cast<AttentionPart*>(reinterpret_cast<float*>(a.parts) + column * a.part_floats);
  }

  static void ask(const float* row, std::size_t n) {
    for (std::size_t i = 0; i < n; i += 16) __builtin_prefetch(row + i);
  }

  // Products of C queries and kSums / C keys; where there are fewer keys, the last one's again.
  template <std::size_t C>
  static void products(const AttentionRows& a, std::size_t key, std::size_t column) {
    constexpr std::size_t kKeys = kSums / C, kStep = kKeys < 4 ? kKeys : 4;
    F acc[kSums][kVectors];
    const float* q = a.queries + column * a.depth;
#pragma GCC unroll 16
    for (std::size_t first = 0; first < kKeys; first += kStep) {
      const float* k[kStep];
#pragma GCC unroll 4
      for (std::size_t i = 0; i < kStep; ++i) {
        const std::size_t t = key + first + i;
        k[i] = a.k + (t < a.keys ? t : a.keys - 1) * a.k_stride;
#pragma GCC unroll 16
        for (std::size_t j = 0; j < C * kVectors; ++j) acc[j / kVectors * kKeys + first + i][j % kVectors] = V::set(0.0f);
      }
      const auto step = [&](std::size_t d, auto load) __attribute__((always_inline)) {
#pragma GCC unroll 16
        for (std::size_t l = 0; l < kVectors; ++l) {
          F x[C];
#pragma GCC unroll 4
          for (std::size_t c = 0; c < C; ++c) x[c] = load(q + c * a.depth + d, l);
#pragma GCC unroll 4
          for (std::size_t i = 0; i < kStep; ++i) {
            const F row = load(k[i] + d, l);
#pragma GCC unroll 4
            for (std::size_t c = 0; c < C; ++c) {
              F& sum = acc[c * kKeys + first + i][l];
              sum = V::fma(x[c], row, sum);
            }
          }
        }
      };
      std::size_t d = 0;
      for (; d + kLanes <= a.depth; d += kLanes) step(d, [](const float* p, std::size_t l) { return V::load(p + l * kWidth); });
      if (d < a.depth)
        step(d, [left = a.depth - d](const float* p, std::size_t l) { return load_of(p + l * kWidth, left, l * kWidth); });
    }
    alignas(64) float sums[kSums];
    V::sums(acc, sums);
#pragma GCC unroll 4
    for (std::size_t c = 0; c < C; ++c)
      __builtin_memcpy(a.scores + (column + c) * score_stride(a) + key, sums + c * kKeys, kKeys * sizeof(float));
  }

  // The vector at `done` of `n` elements, zeros behind them.
  static F load_of(const float* p, std::size_t n, std::size_t done) {
    const std::size_t left = n > done ? n - done : 0;
    return left >= kWidth ? V::load(p) : V::load_n(p, static_cast<int>(left));
  }

  template <std::size_t C>
  static std::size_t products_of(const AttentionRows& a, std::size_t key, std::size_t end, std::size_t column) {
    if constexpr (C <= kSums)
      for (; column + C <= a.columns; column += C)
        for (std::size_t t = key; t < end; t += kSums / C) products<C>(a, t, column);
    return column;
  }

  static void scores(const AttentionRows& a) {
    for (std::size_t key = 0; key < a.keys; key += kLanes) {
      const std::size_t end = key + kLanes < a.keys ? key + kLanes : a.keys;
      for (std::size_t t = key; t < end; ++t) ask(a.k + (t + kAhead) * a.k_stride, a.depth);
      std::size_t column = products_of<4>(a, key, end, 0);
      column = products_of<2>(a, key, end, column);
      products_of<1>(a, key, end, column);
    }
  }

  // Products of a query to weights that are not divided by their sum yet.
  static void weigh(const AttentionRows& a, std::size_t column) {
    float* s = a.scores + column * score_stride(a);
    const std::size_t padded = score_stride(a);
    const float* bias = a.bias ? a.bias[column] : nullptr;
    const F scale = V::set(a.scale), cap = V::set(a.softcap), none = V::set(-__builtin_inff());
    F most = V::set(-__FLT_MAX__);
    for (std::size_t t = 0; t < padded; t += kWidth) {
      const F add = bias ? load_of(bias + t, a.keys, t) : V::set(0.0f);
      F x = V::load(s + t);
      if (a.softcap != 0.0f) x = V::fma(cap, Elementwise<V>::tanh(V::div(V::mul(x, scale), cap)), add);
      else x = V::fma(x, scale, add);
      if (t + kWidth > a.keys) x = V::pick(t < a.keys ? (1u << (a.keys - t)) - 1u : 0u, x, none);  // behind the keys
      V::store(s + t, x);
      most = V::max(x, most);
    }
    alignas(64) float lanes[kLanes];
    V::store(lanes, most);
    float top = lanes[0];
    for (std::size_t l = 1; l < kWidth; ++l) top = lanes[l] > top ? lanes[l] : top;
    F sum[kVectors];
    for (std::size_t l = 0; l < kVectors; ++l) sum[l] = V::set(0.0f);
    for (std::size_t t = 0; t < padded; t += kLanes)
#pragma GCC unroll 16
      for (std::size_t l = 0; l < kVectors; ++l) {
        float* at = s + t + l * kWidth;
        const F e = Weights<V>::exp(V::sub(V::load(at), V::set(top)));
        V::store(at, e);
        sum[l] = V::add(sum[l], e);
      }
    for (std::size_t l = 0; l < kVectors; ++l) V::store(lanes + l * kWidth, sum[l]);
    for (std::size_t half = kLanes / 2; half > 0; half /= 2)
      for (std::size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    part(a, column)->top = top;
    part(a, column)->sum = lanes[0];
  }

  // E vectors of the mixed values of C queries; of the last vector `n` elements.
  template <std::size_t C, std::size_t E>
  static void mix(const AttentionRows& a, std::size_t column, std::size_t d, int n) {
    const std::size_t stride = score_stride(a);
    const float *w = a.scores + column * stride, *v = a.v + d;
    const bool whole = n == static_cast<int>(kWidth);
    F acc[C][E];
#pragma GCC unroll 4
    for (std::size_t c = 0; c < C; ++c)
#pragma GCC unroll 8
      for (std::size_t e = 0; e < E; ++e) acc[c][e] = V::set(0.0f);
    for (std::size_t t = 0; t < a.keys; ++t, v += a.v_stride) {
      F row[E];
      __builtin_prefetch(v + kAhead * a.v_stride);
      if (E * kWidth > 16) __builtin_prefetch(v + kAhead * a.v_stride + 16);
      if (E * kWidth > 32) __builtin_prefetch(v + kAhead * a.v_stride + 32);
      if (E * kWidth > 48) __builtin_prefetch(v + kAhead * a.v_stride + 48);
#pragma GCC unroll 8
      for (std::size_t e = 0; e < E; ++e) row[e] = e + 1 < E || whole ? V::load(v + e * kWidth) : V::load_n(v + e * kWidth, n);
#pragma GCC unroll 4
      for (std::size_t c = 0; c < C; ++c) {
        const F weight = V::set(w[c * stride + t]);
#pragma GCC unroll 8
        for (std::size_t e = 0; e < E; ++e) acc[c][e] = V::fma(weight, row[e], acc[c][e]);
      }
    }
#pragma GCC unroll 4
    for (std::size_t c = 0; c < C; ++c)
#pragma GCC unroll 8
      for (std::size_t e = 0; e < E; ++e) V::store(result(part(a, column + c)) + d + e * kWidth, acc[c][e]);
  }

  // All values of C queries. Results are padded to whole lanes.
  template <std::size_t C>
  static std::size_t mixed_of(const AttentionRows& a, std::size_t column) {
    constexpr std::size_t kMost = kWidth != 8 || C < 4 ? 4 : 2;
    for (; column + C <= a.columns; column += C) {
      std::size_t d = 0;
      for (; d + kMost * kWidth <= a.value_depth; d += kMost * kWidth) mix<C, kMost>(a, column, d, kWidth);
      for (; d < a.value_depth; d += kWidth) {
        const std::size_t left = a.value_depth - d;
        mix<C, 1>(a, column, d, static_cast<int>(left < kWidth ? left : kWidth));
      }
    }
    return column;
  }

  static void attention(const AttentionRows& a) {
    scores(a);
    for (std::size_t c = 0; c < a.columns; ++c) weigh(a, c);
    std::size_t column = mixed_of<4>(a, 0);
    column = mixed_of<2>(a, column);
    mixed_of<1>(a, column);
  }

  static float exp(float x) {
    alignas(64) float lanes[kWidth];
    V::store(lanes, Weights<V>::exp(V::set(x)));
    return lanes[0];
  }

  static void merge(const MergeParts& m) {
    const auto chunk = [&](std::size_t i) { return reinterpret_cast<AttentionPart*>(reinterpret_cast<float*>(m.parts) + i * m.stride); };
    float top = -__FLT_MAX__, sum = 0.0f, counts = 0.0f;
    for (std::size_t i = 0; i < m.chunks; ++i) top = chunk(i)->top > top ? chunk(i)->top : top;
    for (std::size_t i = 0; i < m.chunks; ++i) {
      AttentionPart* part = chunk(i);
      part->top = exp(part->top - top);  // a factor from here on
      sum = __builtin_fmaf(part->sum, part->top, sum);
      counts += part->counts;
    }
    const F divisor = V::set(1.0f / sum);
    for (std::size_t d = 0; d < m.value_depth; d += kWidth) {
      F acc = V::set(0.0f);
      for (std::size_t i = 0; i < m.chunks; ++i) acc = V::fma(V::load(result(chunk(i)) + d), V::set(chunk(i)->top), acc);
      acc = counts != 0.0f ? V::mul(acc, divisor) : V::set(0.0f);
      const std::size_t left = m.value_depth - d;
      V::store_n(m.out + d, acc, static_cast<int>(left < kWidth ? left : kWidth));
    }
  }
};

}  // namespace
}  // namespace octavo
