// Scaled dot-product attention for up to 64 queries of one head and a block of keys. Queries lie side by side, one a
// lane: scores [keys][queries], so that softmax runs down a column, no sum crosses lanes, and every instruction set
// gives the same bits. What earlier blocks gave is scaled to the largest score so far.
// docs/notes/processors.md: "Attention keeps queries side by side"
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"
#include "isa/activations.h"
#include "isa/attention_weights.h"
#include "isa/vector_scalar.h"

namespace octavo {
namespace {

template <class V>
struct AttentionPanels {
  using F = typename V::F;
  static constexpr std::size_t kWidth = static_cast<std::size_t>(V::kWidth);
  static constexpr std::size_t kMost = kWidth == 8 ? 2 : 4;  // vectors of a tile
  // Rows of a tile of C vectors: as many sums as registers hold, and enough of them to keep multipliers busy.
  // With 256 bits the halves of pairs want some of those.
  template <bool kPairs, std::size_t C>
  static constexpr std::size_t kRows = kPairs && kWidth == 8 ? 4 : C == 4 || kWidth == 8 ? 6 : 8;

  // out[r][c] = start[r][c] + sum over k of a(r, k) * panel[k][c], in ascending k. a(r, k) is a[r * step + k], or with
  // kAcross a[r + k * step]; start is 0 or out * factor[c]. With kPairs a and panel hold pairs, and out is multiplied
  // by its factors before.
  struct Product {
    const float* a;
    std::size_t step, rows, k;
    const float* panel;
    const float* factor;  // null: from 0
    float* out;
  };

  template <bool kPairs, bool kAcross, std::size_t R, std::size_t C>
  static void tile(const Product& p, std::size_t row, std::size_t column) {
    const float* a[kAcross ? 1 : R];
#pragma GCC unroll 8
    for (std::size_t r = 0; r < (kAcross ? 1 : R); ++r) a[r] = p.a + (kAcross ? row : (row + r) * p.step);
    const float* panel = p.panel + column;
    float* out = p.out + row * kPanelQueries + column;
    F acc[R][C];
#pragma GCC unroll 8
    for (std::size_t r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (std::size_t c = 0; c < C; ++c)
        acc[r][c] = p.factor ? start<kPairs>(out + r * kPanelQueries + c * kWidth, p.factor + column + c * kWidth) : V::set(0.0f);
    for (std::size_t k = 0; k < p.k; ++k) {
      F v[C];
#pragma GCC unroll 4
      for (std::size_t c = 0; c < C; ++c) v[c] = V::load(panel + k * kPanelQueries + c * kWidth);
#pragma GCC unroll 8
      for (std::size_t r = 0; r < R; ++r) {
        const F x = V::set(kAcross ? a[0][r] : a[r][k]);
#pragma GCC unroll 4
        for (std::size_t c = 0; c < C; ++c) acc[r][c] = kPairs ? V::dot_pairs(acc[r][c], x, v[c]) : V::fma(x, v[c], acc[r][c]);
      }
      if (kAcross) a[0] += p.step;
    }
#pragma GCC unroll 8
    for (std::size_t r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (std::size_t c = 0; c < C; ++c) V::store(out + r * kPanelQueries + c * kWidth, acc[r][c]);
  }

  template <bool kPairs>
  static F start(const float* out, const float* factor) {
    return kPairs ? V::load(out) : V::mul(V::load(out), V::load(factor));
  }

  template <bool kPairs, bool kAcross, std::size_t R, std::size_t C>
  static void tile_of(const Product& p, std::size_t row, std::size_t rows, std::size_t column) {
    if constexpr (R > 1)
      if (rows < R) return tile_of<kPairs, kAcross, R - 1, C>(p, row, rows, column);
    tile<kPairs, kAcross, R, C>(p, row, column);
  }

  template <std::size_t C>
  static void copy_tile(const float* from, std::size_t stride, std::size_t rows, float* to, std::size_t to_stride) {
    for (std::size_t r = 0; r < rows; ++r)
#pragma GCC unroll 4
      for (std::size_t c = 0; c < C * kWidth; c += kWidth) V::store(to + r * to_stride + c, V::load(from + r * stride + c));
  }
  // A row of pairs by the definition.
  template <bool kAcross>
  static __attribute__((noinline)) void exact_row(const Product& p, std::size_t row, std::size_t column, std::size_t end) {
    const float* a = p.a + (kAcross ? row : row * p.step);
    for (float* out = p.out + row * kPanelQueries; column < end; ++column) {
      float sum = p.factor ? out[column] : 0.0f;
      for (std::size_t k = 0; k < p.k; ++k) sum = Scalar::dot_pairs(sum, a[kAcross ? k * p.step : k], p.panel[k * kPanelQueries + column]);
      out[column] = sum;
    }
  }

  // Where a processor does not flush as the reference does, what it has flushed is made again.
  template <bool kPairs, bool kAcross, std::size_t C>
  static void tile_in_mode(const Product& p, std::size_t row, std::size_t rows, std::size_t column) {
    if constexpr (kPairs && !V::Flushing::kExact) {
      float before[kRows<kPairs, C> * C * kWidth];
      if (p.factor) copy_tile<C>(p.out + row * kPanelQueries + column, kPanelQueries, rows, before, C * kWidth);
      bool flushed;
      {
        const typename V::Flushing mode;
        tile_of<kPairs, kAcross, kRows<kPairs, C>, C>(p, row, rows, column);
        flushed = mode.flushed();
      }
      if (!flushed) return;
      if (p.factor) copy_tile<C>(before, C * kWidth, rows, p.out + row * kPanelQueries + column, kPanelQueries);
      for (std::size_t r = row; r < row + rows; ++r) exact_row<kAcross>(p, r, column, column + C * kWidth);
    } else if constexpr (kPairs) {
      const typename V::Flushing mode;
      tile_of<kPairs, kAcross, kRows<kPairs, C>, C>(p, row, rows, column);
    } else {
      tile_of<kPairs, kAcross, kRows<kPairs, C>, C>(p, row, rows, column);
    }
  }

  // `after` sees the rows of each tile while they are in the nearest cache.
  template <bool kPairs, bool kAcross, std::size_t C, class After>
  static void product(const Product& p, std::size_t column, const After& after) {
    // All tiles about the same: 32 rows are 6, 6, 5, 5, 5, 5.
    const std::size_t tiles = (p.rows + kRows<kPairs, C> - 1) / kRows<kPairs, C>;
    for (std::size_t i = 0; i < tiles; ++i) {
      const std::size_t row = p.rows * i / tiles, rows = p.rows * (i + 1) / tiles - row;
      tile_in_mode<kPairs, kAcross, C>(p, row, rows, column);
      after(row, rows);
    }
  }

  // Products to scores: scaled, bounded, the bias added, -infinity where a key does not count; the largest yet.
  template <std::size_t C>
  static void finish(const AttentionPanel& p, std::size_t column, std::size_t first, std::size_t rows, F (&top)[C]) {
    const F scale = V::set(p.scale);
    float* row = p.scores + first * kPanelQueries + column;
    if (!p.bias && !p.bias_panel && !p.counts && p.softcap == 0.0f) {
      const F none = V::set(0.0f);
      for (std::size_t t = 0; t < rows; ++t, row += kPanelQueries)
#pragma GCC unroll 4
        for (std::size_t c = 0; c < C; ++c) {
          const F x = V::fma(V::load(row + c * kWidth), scale, none);
          V::store(row + c * kWidth, x);
          top[c] = V::max(x, top[c]);
        }
      return;
    }
    const F cap = V::set(p.softcap);
    for (std::size_t t = first; t < first + rows; ++t, row += kPanelQueries) {
      const std::uint64_t counts = p.counts ? p.counts[t] >> column : ~std::uint64_t{0};
      const float* added = p.bias_panel ? p.bias_panel + t * kPanelQueries + column : nullptr;
      const F same = V::set(p.bias ? p.bias[t] : 0.0f);
#pragma GCC unroll 4
      for (std::size_t c = 0; c < C; ++c) {
        const F add = added ? V::load(added + c * kWidth) : same;
        F x = V::load(row + c * kWidth);
        if (p.softcap != 0.0f) x = V::fma(cap, Elementwise<V>::tanh(V::div(V::mul(x, scale), cap)), add);
        else x = V::fma(x, scale, add);
        x = V::pick(static_cast<std::uint32_t>(counts >> (c * kWidth)), x, V::set(-__builtin_inff()));
        V::store(row + c * kWidth, x);
        top[c] = V::max(x, top[c]);
      }
    }
  }

  static F weight_of(const float* score, F top) { return Weights<V>::exp(V::sub(V::load(score), top)); }

  // Scores to weights that are not divided by their sum yet.
  template <bool kPairs, std::size_t C>
  static void weigh(const AttentionPanel& p, std::size_t column, const F (&top)[C]) {
    F sum[C];
#pragma GCC unroll 4
    for (std::size_t c = 0; c < C; ++c) sum[c] = V::set(0.0f);
    float* row = p.scores + column;
    if constexpr (kPairs) {
      const F one = V::pair(V::set(1.0f), V::set(1.0f));
      for (std::size_t t = 0; t < p.keys; t += 2) {  // a pair is stored where both of its keys have been read
        const float* two = p.scores + t * kPanelQueries + column;
#pragma GCC unroll 4
        for (std::size_t c = 0; c < C; ++c, two += kWidth) {
          const F low = weight_of(two, top[c]), high = t + 1 < p.keys ? weight_of(two + kPanelQueries, top[c]) : V::set(0.0f);
          const F both = V::pair(low, high);
          V::store(row + c * kWidth, both);
          sum[c] = V::dot_pairs(sum[c], both, one);
        }
        row += kPanelQueries;
      }
    } else {
      for (std::size_t t = 0; t < p.keys; ++t, row += kPanelQueries)
#pragma GCC unroll 4
        for (std::size_t c = 0; c < C; ++c) {
          const F e = weight_of(row + c * kWidth, top[c]);
          V::store(row + c * kWidth, e);
          sum[c] = V::add(sum[c], e);
        }
    }
#pragma GCC unroll 4
    for (std::size_t c = 0; c < C; ++c) {
      const std::size_t at = column + c * kWidth;
      const F before = p.first ? V::set(0.0f) : Weights<V>::exp(V::sub(V::load(p.top + at), top[c]));
      V::store(p.factor + at, before);
      V::store(p.sums + at, p.first ? sum[c] : V::fma(V::load(p.sums + at), before, sum[c]));
      V::store(p.top + at, top[c]);
    }
  }

  // out times the factors of a panel's columns.
  template <std::size_t C>
  static void multiply(const AttentionPanel& p, std::size_t column, const F (&factor)[C]) {
    for (std::size_t d = 0; d < p.value_depth; ++d)
#pragma GCC unroll 4
      for (std::size_t c = 0; c < C; ++c) {
        float* at = p.out + d * kPanelQueries + column + c * kWidth;
        V::store(at, V::mul(V::load(at), factor[c]));
      }
  }

  template <bool kPairs, std::size_t C>
  static void columns_of(const AttentionPanel& p, std::size_t column) {
    F top[C];
    // The least number, not -infinity: where no key counted yet, -infinity less it is no NaN.
#pragma GCC unroll 4
    for (std::size_t c = 0; c < C; ++c) top[c] = p.first ? V::set(-__FLT_MAX__) : V::load(p.top + column + c * kWidth);
    const std::size_t inputs = kPairs ? pairs_of(p.depth) : p.depth, weights = kPairs ? pairs_of(p.keys) : p.keys;
    product<kPairs, false, C>({p.k, p.k_stride, p.keys, inputs, p.queries, nullptr, p.scores}, column,
                              [&](std::size_t row, std::size_t rows) { finish<C>(p, column, row, rows, top); });
    weigh<kPairs, C>(p, column, top);
    F factor[C];
    if (kPairs && !p.first) {
#pragma GCC unroll 4
      for (std::size_t c = 0; c < C; ++c) factor[c] = V::load(p.factor + column + c * kWidth);
      multiply<C>(p, column, factor);
    }
    product<kPairs, true, C>({p.v, p.v_stride, p.value_depth, weights, p.scores, p.first ? nullptr : p.factor, p.out}, column,
                             [](std::size_t, std::size_t) {});
    if (!p.last) return;
#pragma GCC unroll 4
    for (std::size_t c = 0; c < C; ++c) factor[c] = V::div(V::set(1.0f), V::load(p.sums + column + c * kWidth));
    multiply<C>(p, column, factor);
  }

  template <bool kPairs>
  static void attention(const AttentionPanel& p) {
    std::size_t column = 0, left = p.columns / kWidth;
    for (; left >= kMost; left -= kMost, column += kMost * kWidth) columns_of<kPairs, kMost>(p, column);
    if constexpr (kMost == 4) {
      if (left == 3) columns_of<kPairs, 3>(p, column);
      else if (left == 2) columns_of<kPairs, 2>(p, column);
      else if (left == 1) columns_of<kPairs, 1>(p, column);
    }
  }
};

template <class V>
inline void pair_rows(const PairRows& r) {
  constexpr std::size_t kWidth = static_cast<std::size_t>(V::kWidth);
  for (std::size_t i = 0; i < r.n; i += kWidth) {
    const int left = static_cast<int>(r.n - i < kWidth ? r.n - i : kWidth);
    const typename V::F none = V::set(0.0f);
    V::store_n(r.to + i, V::pair(r.low ? V::load_n(r.low + i, left) : none, r.high ? V::load_n(r.high + i, left) : none), left);
  }
}

// Eight rows at a time as bytes, which vectors hold many of.
inline void key_bits(const KeyBits& b) {
  constexpr std::size_t kRun = 256;
  std::uint8_t bits[kRun];
  for (std::size_t first = 0; first < b.keys; first += kRun) {
    const std::size_t keys = b.keys - first < kRun ? b.keys - first : kRun;
    std::uint64_t* counts = b.counts + first;
    for (std::size_t t = 0; t < keys; ++t) counts[t] = 0;
    for (std::size_t r = 0; r < b.rows; ++r) {
      const std::uint8_t* row = b.mask[r] + first * b.step;
      const int bit = static_cast<int>(r % 8);
      if (bit == 0) __builtin_memset(bits, 0, kRun);
      if (b.step == 1)
        for (std::size_t t = 0; t < keys; ++t) bits[t] = static_cast<std::uint8_t>(bits[t] | (row[t] != 0) << bit);
      else
        for (std::size_t t = 0; t < keys; ++t) bits[t] = static_cast<std::uint8_t>(bits[t] | (row[t * b.step] != 0) << bit);
      if (bit == 7 || r + 1 == b.rows)
        for (std::size_t t = 0; t < keys; ++t) counts[t] |= static_cast<std::uint64_t>(bits[t]) << (r / 8 * 8);
    }
  }
}

}  // namespace
}  // namespace octavo
