// Float32 products for layers that stay float: one chain of fused multiply-adds for each output, in
// ascending order of inputs, so that every instruction set gives the same bits.
#pragma once

#include <cstddef>

#include "contract/kernels.h"

namespace octavo {
namespace {

template <class V>
struct FloatProduct {
  using F = typename V::F;
  static constexpr std::size_t kWidth = static_cast<std::size_t>(V::kWidth);
  static constexpr std::size_t kParts = kBlockN / kWidth;  // vectors of a block of 16 columns
  // Blocks of a tile of four rows, and of one row: 16 sums (8 with AVX2, which has fewer registers), and
  // 8 for a row; enough chains to hide an addition's latency.
  static constexpr std::size_t kWide = kWidth == 16 ? 4 : 1, kLong = kWidth == 16 ? 8 : kWidth == 8 ? 4 : kWidth == 4 ? 2 : 1;

  // R rows by C blocks. GCC keeps the sums in registers only if it unrolls every loop over them.
  template <std::size_t R, std::size_t C>
  static void tile(const FloatGemm& g, std::size_t row, std::size_t block) {
    const std::size_t step = g.k * kBlockN, first = block * kBlockN;
    const float* w = g.weight + block * step;
    const float* x = g.x + row * g.x_stride;
    F acc[R][C * kParts];
#pragma GCC unroll 32
    for (std::size_t r = 0; r < R; ++r)
#pragma GCC unroll 32
      for (std::size_t c = 0; c < C * kParts; ++c)
        acc[r][c] = g.bias ? V::load(g.bias + (row + r) * g.bias_stride + first + c * kWidth) : V::set(0.0f);
    for (std::size_t k = 0; k < g.k; ++k) {
      F v[C * kParts];
#pragma GCC unroll 32
      for (std::size_t c = 0; c < C * kParts; ++c)
        v[c] = V::load(w + c / kParts * step + k * kBlockN + c % kParts * kWidth);
#pragma GCC unroll 32
      for (std::size_t r = 0; r < R; ++r) {
        const F a = V::set(x[r * g.x_stride + k]);
#pragma GCC unroll 32
        for (std::size_t c = 0; c < C * kParts; ++c) acc[r][c] = V::fma(a, v[c], acc[r][c]);
      }
    }
    float* out = g.out + row * g.out_stride + first;
#pragma GCC unroll 32
    for (std::size_t r = 0; r < R; ++r)
#pragma GCC unroll 32
      for (std::size_t c = 0; c < C * kParts; ++c) V::store(out + r * g.out_stride + c * kWidth, acc[r][c]);
  }

  template <std::size_t C>
  static void rows(const FloatGemm& g, std::size_t block) {
    std::size_t m = 0;
    for (; m + 4 <= g.rows; m += 4) tile<4, C>(g, m, block);
    for (; m + 2 <= g.rows; m += 2) tile<2, C>(g, m, block);
    if (m < g.rows) tile<1, C>(g, m, block);
  }

  static void gemm(const FloatGemm& g) {
    std::size_t block = g.block_begin;
    if (g.rows == 1)
      for (; block + kLong <= g.block_end; block += kLong) tile<1, kLong>(g, 0, block);
    for (; block + kWide <= g.block_end; block += kWide) rows<kWide>(g, block);
    for (; block < g.block_end; ++block) rows<1>(g, block);
  }
};

}  // namespace
}  // namespace octavo
