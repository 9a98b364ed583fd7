// The exact int8 product by ARM's matrix instruction: smmla multiplies two rows of 8 inputs by two outputs' 8 weights, which is
// twice what sdot does.
//
// It wants 8 weights of an output side by side, where packed blocks have four: zip makes two steps of a block into that. Six
// rows by 16 outputs are 24 smmla for 8 inputs, and 8 zips would take a third of their time on the same pipes. So where several
// tiles of rows pass, a block's weights are turned once for all of them, in memory that stays in the L1 cache.
// docs/notes/processors.md: "ARM's matrix instruction wants weights turned"
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"
#include "isa/constant_indices.h"
#include "isa/product.h"
#include "isa/product_neon.h"
#include "isa/product_parts.h"
#include "isa/product_tile.h"

namespace octavo {
namespace {

// Weights of two steps: eight vectors, each of two outputs.
struct TwoSteps {
  // Outputs 4c .. 4c + 3, turned already or not.
  template <bool turned>
  static OCTAVO_INLINE int8x16x2_t four(const std::int8_t* b, int c) {
    if constexpr (turned) return {vld1q_s8(b + 32 * c), vld1q_s8(b + 32 * c + 16)};
    else return zip(b + 16 * c, b + 64 + 16 * c);
  }
  static OCTAVO_INLINE int8x16x2_t zip(const std::int8_t* p, const std::int8_t* q) {
    return zip(vreinterpretq_s32_s8(vld1q_s8(p)), vreinterpretq_s32_s8(vld1q_s8(q)));
  }
  // The last of an odd number, and zeros.
  static OCTAVO_INLINE int8x16x2_t last(const std::int8_t* b, int c) {
    return zip(vreinterpretq_s32_s8(vld1q_s8(b + 16 * c)), vdupq_n_s32(0));
  }
  static void turn(const std::int8_t* b, std::size_t steps, std::int8_t* to) {
    for (; steps >= 2; steps -= 2, b += 128, to += 128)
      for (int c = 0; c < 4; ++c) store(to + 32 * c, four<false>(b, c));
    for (int c = 0; steps && c < 4; ++c) store(to + 32 * c, last(b, c));
  }

 private:
  static OCTAVO_INLINE int8x16x2_t zip(int32x4_t p, int32x4_t q) {
    return {vreinterpretq_s8_s32(vzip1q_s32(p, q)), vreinterpretq_s8_s32(vzip2q_s32(p, q))};
  }
  static OCTAVO_INLINE void store(std::int8_t* to, int8x16x2_t w) {
    vst1q_s8(to, w.val[0]);
    vst1q_s8(to + 16, w.val[1]);
  }
};

// Sums of R rows by 16 outputs, two by two. Of an odd number the last row is there twice.
template <int R>
struct MatrixSums {
  static constexpr int kPairs = (R + 1) / 2, N = kPairs * 8;
  using Pairs = Sequence<kPairs>;
  using I = int32x4_t;
  I v[N];

  OCTAVO_INLINE void clear() { clear(Sequence<N>{}); }
  OCTAVO_INLINE void load(const I* from) { load(from, Sequence<N>{}); }
  OCTAVO_INLINE void store(I* to) const { store(to, Sequence<N>{}); }

  template <bool turned>
  OCTAVO_INLINE void add(const std::uint8_t* a, std::size_t stride, const std::int8_t* b, std::size_t steps) {
    const std::size_t twos = turned ? (steps + 1) / 2 : steps / 2;
    for (std::size_t i = 0; i < twos; ++i) {
      I x[kPairs];
      inputs(x, a + i * 8, stride, Pairs{});
      columns<turned>(x, b + i * 128, Sequence<4>{});
    }
    if (turned || steps % 2 == 0) return;
    I x[kPairs];
    inputs(x, a + twos * 8, stride, Pairs{});
    last_columns(x, b + twos * 128, Sequence<4>{});
  }
  // Row by row, four vectors each.
  OCTAVO_INLINE void rows(I (&to)[R * 4]) const { rows(to, Sequence<R>{}, Sequence<4>{}); }

 private:
  template <int... i>
  OCTAVO_INLINE void clear(Indices<i...>) {
    ((v[i] = vdupq_n_s32(0)), ...);
  }
  template <int... i>
  OCTAVO_INLINE void load(const I* from, Indices<i...>) {
    ((v[i] = from[i]), ...);
  }
  template <int... i>
  OCTAVO_INLINE void store(I* to, Indices<i...>) const {
    ((to[i] = v[i]), ...);
  }
  template <int... p>
  static OCTAVO_INLINE void inputs(I (&x)[kPairs], const std::uint8_t* a, std::size_t stride, Indices<p...>) {
    ((x[p] = two_rows(a + 2 * p * stride, a + (2 * p + 1 < R ? 2 * p + 1 : 2 * p) * stride)), ...);
  }
  static OCTAVO_INLINE I two_rows(const std::uint8_t* first, const std::uint8_t* second) {
    return vreinterpretq_s32_u8(vcombine_u8(vld1_u8(first), vld1_u8(second)));
  }
  template <bool turned, int... c>
  OCTAVO_INLINE void columns(const I (&x)[kPairs], const std::int8_t* b, Indices<c...>) {
    (column<c>(x, TwoSteps::four<turned>(b, c), Pairs{}), ...);
  }
  template <int... c>
  OCTAVO_INLINE void last_columns(const I (&x)[kPairs], const std::int8_t* b, Indices<c...>) {
    (column<c>(x, TwoSteps::last(b, c), Pairs{}), ...);
  }
  template <int c, int... p>
  OCTAVO_INLINE void column(const I (&x)[kPairs], int8x16x2_t w, Indices<p...>) {
    ((v[p * 8 + 2 * c] = vmmlaq_s32(v[p * 8 + 2 * c], vreinterpretq_s8_s32(x[p]), w.val[0])), ...);
    ((v[p * 8 + 2 * c + 1] = vmmlaq_s32(v[p * 8 + 2 * c + 1], vreinterpretq_s8_s32(x[p]), w.val[1])), ...);
  }
  template <int... r, int... c>
  OCTAVO_INLINE void rows(I (&to)[R * 4], Indices<r...>, Indices<c...> columns) const {
    (row<r>(to, columns), ...);
  }
  template <int r, int... c>
  OCTAVO_INLINE void row(I (&to)[R * 4], Indices<c...>) const {
    ((to[r * 4 + c] = half<r % 2>(v[r / 2 * 8 + 2 * c], v[r / 2 * 8 + 2 * c + 1])), ...);
  }
  template <int which>
  static OCTAVO_INLINE I half(I a, I b) {
    const int64x2_t x = vreinterpretq_s64_s32(a), y = vreinterpretq_s64_s32(b);
    return vreinterpretq_s32_s64(which ? vtrn2q_s64(x, y) : vtrn1q_s64(x, y));
  }
};

struct MatrixProduct {
  static constexpr std::size_t kTallest = 6, kVectors = 24;       // rows and sums of a tile
  static constexpr std::size_t kTurnedSteps = 512, kMostTiles = kRowsAtOnce / kTallest;  // 32 KB of weights
  static constexpr std::size_t kFewRows = 3, kFewTiles = 2;       // for which sdot takes no longer, and zips in each tile

  // A part of the inputs; the sums of those before are at `sums`.
  struct Part {
    const std::int8_t* b;
    std::size_t first, steps;
    bool begins, ends;
  };
  using Tile = void (*)(const ProductTile&, const Part&, int32x4_t* sums);

  template <int R, bool turned>
  static void tile(const ProductTile& t, const Part& part, int32x4_t* sums) {
    const std::size_t stride = Product<NeonDot>::row_bytes(t.g);
    MatrixSums<R> acc;
    if (part.begins) acc.clear();
    else acc.load(sums);
    acc.template add<turned>(t.a(stride) + part.first * kBlockK, stride, part.b, part.steps);
    if (!part.ends) return acc.store(sums);
    int32x4_t v[R * 4];
    acc.rows(v);
    if (t.plain(1)) return TileOutput<NeonDot, R, 4, false>::store(t, v);
    for (std::size_t c = 0; c < 4; ++c) finish_rows<NeonDot>(t.g, t.block * kBlockN + c * 4, t.row, R, v + c, 4);
  }

  template <bool turned>
  static void tiles(const Gemm& g, std::size_t first, std::size_t last, std::size_t block, const Part& part, int32x4_t* sums) {
    static constexpr Tile all[] = {tile<1, turned>, tile<2, turned>, tile<3, turned>, tile<4, turned>, tile<5, turned>, tile<6, turned>};
    const std::size_t count = last - first, tiles = (count + kTallest - 1) / kTallest, few = count / tiles, larger = count % tiles;
    for (std::size_t i = 0, row = first; i < tiles; ++i, sums += kVectors) {
      const std::size_t height = few + (i < larger);
      all[height - 1]({g, row, block}, part, sums);
      row += height;
    }
  }

  // Rows first .. last - 1, kRowsAtOnce at most, by a block.
  static void rows(const Gemm& g, std::size_t first, std::size_t last, std::size_t block) {
    const std::int8_t* b = g.weight.data + block * g.weight.block_bytes();
    const std::size_t steps = steps_of(g.weight.k);
    if (last - first <= kFewTiles * kTallest) return tiles<false>(g, first, last, block, {b, 0, steps, true, true}, nullptr);
    alignas(kAlign) std::int8_t turned[kTurnedSteps * 64];
    int32x4_t sums[kMostTiles * kVectors];
    std::size_t step = 0;
    do {
      const std::size_t count = steps - step < kTurnedSteps ? steps - step : kTurnedSteps;
      TwoSteps::turn(b + step * 64, count, turned);
      tiles<true>(g, first, last, block, {turned, step, count, step == 0, step + count == steps}, sums);
      step += count;
    } while (step < steps);
  }

  static void gemm(const Gemm& g) {
    if (g.raw || g.group || g.rows <= kFewRows) return Product<NeonDot>::gemm(g);
    const std::size_t at_once = rows_at_once(g.rows);
    const WeightParts parts(g.weight, g.block_begin, g.block_end, (g.rows + kTallest - 1) / kTallest, 1, 8);
    for (std::size_t first = g.block_begin; first < g.block_end; first += parts.blocks) {
      const std::size_t last = first + parts.blocks < g.block_end ? first + parts.blocks : g.block_end;
      for (std::size_t row = 0; row < g.rows; row += at_once)
        for (std::size_t block = first; block < last; ++block) rows(g, row, row + at_once < g.rows ? row + at_once : g.rows, block);
    }
  }
};

// Twenty-four independent sums, four of them in each row.
inline void matrix_peak(std::size_t turns) {
  MatrixSums<6> acc;
  acc.clear();
  alignas(kAlign) static const std::int8_t ones[128] = {1};
  for (std::size_t i = 0; i < turns; ++i) acc.add<true>(reinterpret_cast<const std::uint8_t*>(ones), 0, ones, 2);
  int32x4_t v[24];
  acc.rows(v);
  for (int32x4_t& x : v) NeonDot::in_turn(x);
}

}  // namespace
}  // namespace octavo
