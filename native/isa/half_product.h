// Products with weights of 16 bits, over any vector type of vector_*.h. Each output is one chain of fused
// multiply-adds in ascending k, so tiles of any size give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"
#include "isa/activations.h"
#include "isa/half.h"

namespace octavo {
namespace {

template <class V>
struct HalfProduct {
  using F = typename V::F;
  static constexpr int kParts = static_cast<int>(kBlockN) / V::kWidth;  // vectors of a block
  // As many sums as registers hold beside the weights and one input; a weight is converted once a tile,
  // so tall tiles come first, and wide ones only where the rows are too few to hide the latency.
  static constexpr int kTallest = V::kWidth == 16 ? 12 : V::kWidth == 1 ? 1 : 6;
  static constexpr int tallest(int blocks) {
    if (V::kWidth == 16) return blocks <= 2 ? 12 : blocks == 4 ? 6 : 2;
    if (V::kWidth == 8) return blocks == 1 ? 6 : blocks == 2 ? 2 : blocks == 4 ? 1 : 0;
    if (V::kWidth == 4) return blocks == 1 ? 6 : blocks == 2 ? 2 : 0;
    return blocks == 1 ? 1 : 0;
  }

  template <class Memory, int R, int B>
  static void tile(const HalfGemm& g, std::size_t row, std::size_t block) {
    constexpr int P = B * kParts;
    const std::uint16_t* w = g.weight + block * g.k * kBlockN;
    const float* x = g.x + row * g.stride;
    F acc[R][P];
    for (int r = 0; r < R; ++r)
      for (int p = 0; p < P; ++p) acc[r][p] = V::set(0.0f);
    for (std::size_t i = 0; i < g.k; ++i) {
      F weights[P];
      for (int p = 0; p < P; ++p)
        weights[p] = Memory::load(w + (static_cast<std::size_t>(p / kParts) * g.k + i) * kBlockN +
                                  static_cast<std::size_t>(p % kParts * V::kWidth));
      for (int r = 0; r < R; ++r) {
        const F input = V::set(x[static_cast<std::size_t>(r) * g.stride + i]);
        for (int p = 0; p < P; ++p) acc[r][p] = V::fma(input, weights[p], acc[r][p]);
      }
    }
    for (int r = 0; r < R; ++r)
      for (int p = 0; p < P; ++p)
        finish(g, row + static_cast<std::size_t>(r), block * kBlockN + static_cast<std::size_t>(p * V::kWidth),
               acc[r][p]);
  }

  static void finish(const HalfGemm& g, std::size_t row, std::size_t column, F sum) {
    if (column >= g.n) return;
    const int columns = g.n - column < V::kWidth ? static_cast<int>(g.n - column) : V::kWidth;
    F y = Elementwise<V>::apply(g.activation, V::add(sum, V::load(g.bias + column)));
    if (g.residual) y = V::add(y, V::load_n(g.residual + row * g.residual_stride + column, columns));
    V::store_n(g.out + row * g.out_stride + column, y, columns);
  }

  template <class Memory, int R, int B>
  static void tile_of(std::size_t rows, const HalfGemm& g, std::size_t row, std::size_t block) {
    if constexpr (R > 1)
      if (rows < R) return tile_of<Memory, R - 1, B>(rows, g, row, block);
    tile<Memory, R, B>(g, row, block);
  }

  // Blocks from `block` on over all rows, as long as B at a time are left; returns where it ended. Tiles
  // are as even as they go: 13 rows are 7 + 6.
  template <class Memory, int B>
  static std::size_t strips(const HalfGemm& g, std::size_t block) {
    if constexpr (tallest(B) > 0) {
      const std::size_t tiles = (g.rows + kTallest - 1) / kTallest;
      if ((g.rows + tiles - 1) / tiles > static_cast<std::size_t>(tallest(B))) return block;
      for (; block + B <= g.block_end; block += B)
        for (std::size_t i = 0; i < tiles; ++i) {
          const std::size_t first = g.rows * i / tiles, last = g.rows * (i + 1) / tiles;
          tile_of<Memory, tallest(B), B>(last - first, g, first, block);
        }
    }
    return block;
  }

  template <class Memory>
  static void run(const HalfGemm& g) {
    std::size_t block = strips<Memory, 8>(g, g.block_begin);
    block = strips<Memory, 4>(g, block);
    block = strips<Memory, 2>(g, block);
    strips<Memory, 1>(g, block);
  }

  static void gemm(const HalfGemm& g) {
    if (g.rows == 0) return;
    if (g.type == DType::kFloat16) run<HalfMemory<V, DType::kFloat16>>(g);
    else run<HalfMemory<V, DType::kBFloat16>>(g);
  }
};

}  // namespace
}  // namespace octavo
