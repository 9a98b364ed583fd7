// Scaled dot-product attention for up to 64 queries of one head. Queries lie side by side, one a lane:
// scores [keys][queries], so that softmax runs down a column, no sum crosses lanes, and every
// instruction set gives the same bits.
#pragma once

#include <cstddef>

#include "contract/kernels.h"
#include "isa/activations.h"

namespace octavo {
namespace {

template <class V>
struct AttentionPanels {
  using F = typename V::F;
  static constexpr std::size_t kWidth = static_cast<std::size_t>(V::kWidth);
  static constexpr std::size_t kRows = 6;                              // of a tile
  static constexpr std::size_t kMost = kWidth == 8 ? 2 : 4;  // vectors of a tile

  // out[r][c] = sum over k of a[r * ra + k * ka] * panel[k][c], in ascending k.
  struct Product {
    const float* a;
    std::size_t ra, ka, rows, k;
    const float* panel;
    float* out;
  };

  template <std::size_t R, std::size_t C>
  static void tile(const Product& p, std::size_t row, std::size_t column) {
    const float* a = p.a + row * p.ra;
    const float* panel = p.panel + column;
    F acc[R][C];
#pragma GCC unroll 32
    for (std::size_t r = 0; r < R; ++r)
#pragma GCC unroll 32
      for (std::size_t c = 0; c < C; ++c) acc[r][c] = V::set(0.0f);
    for (std::size_t k = 0; k < p.k; ++k) {
      F v[C];
#pragma GCC unroll 32
      for (std::size_t c = 0; c < C; ++c) v[c] = V::load(panel + k * kPanelQueries + c * kWidth);
#pragma GCC unroll 32
      for (std::size_t r = 0; r < R; ++r) {
        const F x = V::set(a[r * p.ra + k * p.ka]);
#pragma GCC unroll 32
        for (std::size_t c = 0; c < C; ++c) acc[r][c] = V::fma(x, v[c], acc[r][c]);
      }
    }
    float* out = p.out + row * kPanelQueries + column;
#pragma GCC unroll 32
    for (std::size_t r = 0; r < R; ++r)
#pragma GCC unroll 32
      for (std::size_t c = 0; c < C; ++c) V::store(out + r * kPanelQueries + c * kWidth, acc[r][c]);
  }

  template <std::size_t C>
  static void rows_of(const Product& p, std::size_t column) {
    // All tiles about the same: 32 rows are 6, 6, 5, 5, 5, 5.
    const std::size_t tiles = (p.rows + kRows - 1) / kRows;
    for (std::size_t i = 0; i < tiles; ++i) {
      const std::size_t row = p.rows * i / tiles, rows = p.rows * (i + 1) / tiles - row;
      switch (rows) {
        case 1: tile<1, C>(p, row, column); break;
        case 2: tile<2, C>(p, row, column); break;
        case 3: tile<3, C>(p, row, column); break;
        case 4: tile<4, C>(p, row, column); break;
        case 5: tile<5, C>(p, row, column); break;
        default: tile<6, C>(p, row, column); break;
      }
    }
  }

  static void product(const Product& p, std::size_t columns) {
    std::size_t column = 0, left = columns / kWidth;
    for (; left >= kMost; left -= kMost, column += kMost * kWidth) rows_of<kMost>(p, column);
    if constexpr (kMost == 4) {
      if (left == 3) rows_of<3>(p, column);
      else if (left == 2) rows_of<2>(p, column);
      else if (left == 1) rows_of<1>(p, column);
    }
  }

  // Scores of C vectors of queries to weights that are not divided by their sum yet; 1 / sum.
  template <std::size_t C>
  static void softmax(const AttentionPanel& p, std::size_t column) {
    float* s = p.scores + column;
    const F scale = V::set(p.scale);
    F top[C], sum[C];
#pragma GCC unroll 4
    for (std::size_t c = 0; c < C; ++c) {
      top[c] = V::set(-__builtin_inff());
      sum[c] = V::set(0.0f);
    }
    for (std::size_t t = 0; t < p.keys; ++t) {
      float* row = s + t * kPanelQueries;
#pragma GCC unroll 4
      for (std::size_t c = 0; c < C; ++c) {
        F add = V::set(p.bias ? p.bias[t] : 0.0f);
        if (p.bias_panel) add = V::load(p.bias_panel + t * kPanelQueries + column + c * kWidth);
        const F product = V::load(row + c * kWidth);
        F x;
        if (p.softcap != 0.0f) x = V::fma(V::set(p.softcap), Elementwise<V>::tanh(V::div(V::mul(product, scale), V::set(p.softcap))), add);
        else x = V::fma(product, scale, add);
        V::store(row + c * kWidth, x);
        top[c] = V::max(x, top[c]);
      }
    }
    for (std::size_t t = 0; t < p.keys; ++t) {
      float* row = s + t * kPanelQueries;
#pragma GCC unroll 4
      for (std::size_t c = 0; c < C; ++c) {
        const F x = V::sub(V::load(row + c * kWidth), top[c]);
        // exp ends at e^-87.3; what is masked weighs nothing at all.
        const F e = V::select(V::less(x, V::set(-87.3f)), V::set(0.0f), Elementwise<V>::exp(x));
        V::store(row + c * kWidth, e);
        sum[c] = V::add(sum[c], e);
      }
    }
#pragma GCC unroll 4
    for (std::size_t c = 0; c < C; ++c) V::store(p.sums + column + c * kWidth, V::div(V::set(1.0f), sum[c]));
  }

  static void attention(const AttentionPanel& p) {
    product({p.k, p.k_stride, 1, p.keys, p.depth, p.queries, p.scores}, p.columns);
    std::size_t column = 0;
    for (; column + kMost * kWidth <= p.columns; column += kMost * kWidth) softmax<kMost>(p, column);
    for (; column < p.columns; column += kWidth) softmax<1>(p, column);
    product({p.v, 1, p.v_stride, p.value_depth, p.keys, p.scores, p.out}, p.columns);
    for (std::size_t d = 0; d < p.value_depth; ++d)
      for (std::size_t c = 0; c < p.columns; c += kWidth) {
        float* at = p.out + d * kPanelQueries + c;
        V::store(at, V::mul(V::load(at), V::load(p.sums + c)));
      }
  }
};

}  // namespace
}  // namespace octavo
