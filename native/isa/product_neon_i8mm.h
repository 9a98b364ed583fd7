// The exact int8 product by ARM's matrix instruction: smmla multiplies two rows of 8 inputs by two outputs' 8 weights, which is
// twice what sdot does.
//
// It wants 8 weights of an output side by side, where packed blocks have four, and 8 inputs of two rows. Six rows by 16 outputs
// are 24 smmla for 8 inputs; 8 zips for the weights and 3 for the inputs would take a third of their time, on the same pipes.
// So where several tiles of rows and blocks meet, both are turned once for all of them, in memory that stays in the caches.
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
  static constexpr std::size_t kBytes = kPairs * 16;  // of 8 inputs, turned
  using Pairs = Sequence<kPairs>;
  using I = int32x4_t;
  I v[N];

  OCTAVO_INLINE void clear() { clear(Sequence<N>{}); }
  OCTAVO_INLINE void load(const I* from) { load(from, Sequence<N>{}); }
  OCTAVO_INLINE void store(I* to) const { store(to, Sequence<N>{}); }

  // `turned`: inputs and weights both, and a last step that is odd with zeros behind it.
  template <bool turned>
  OCTAVO_INLINE void add(const std::uint8_t* a, std::size_t stride, const std::int8_t* b, std::size_t steps) {
    const std::size_t twos = turned ? (steps + 1) / 2 : steps / 2;
    for (std::size_t i = 0; i < twos; ++i) {
      I x[kPairs];
      if constexpr (turned) turned_inputs(x, a + i * kBytes, Pairs{});
      else inputs(x, a + i * 8, stride, Pairs{});
      columns<turned>(x, b + i * 128, Sequence<4>{});
    }
    if (turned || steps % 2 == 0) return;
    I x[kPairs];
    inputs(x, a + twos * 8, stride, Pairs{});
    last_columns(x, b + twos * 128, Sequence<4>{});
  }
  // Row by row, four vectors each.
  OCTAVO_INLINE void rows(I (&to)[R * 4]) const { rows(to, Sequence<R>{}, Sequence<4>{}); }

  // Inputs as add<true> takes them. A panel's rows are padded to more than whole steps.
  static void turn(const std::uint8_t* a, std::size_t stride, std::size_t steps, std::uint8_t* to) {
    for (std::size_t k = 0; k < steps * kBlockK; k += 8, to += kBytes) {
      I x[kPairs];
      inputs(x, a + k, stride, Pairs{});
      for (std::size_t p = 0; p < kPairs; ++p) vst1q_u8(to + 16 * p, vreinterpretq_u8_s32(x[p]));
    }
  }

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
  template <int... p>
  static OCTAVO_INLINE void turned_inputs(I (&x)[kPairs], const std::uint8_t* a, Indices<p...>) {
    ((x[p] = NeonDot::four_steps(a + 16 * p)), ...);
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
  static constexpr std::size_t kTallest = 6, kVectors = 24;  // rows and sums of a tile
  static constexpr std::size_t kFewRows = 3, kFewTiles = 2;  // for which sdot takes no longer; for which nothing is turned
  // What is turned: 48 rows of 1,024 inputs are 48 KB, and as much of a block 16 KB. Inputs are turned once for eight blocks.
  static constexpr std::size_t kMostTiles = kRowsAtOnce / kTallest, kSteps = 256, kBlocks = 8;
  static constexpr std::size_t kTileBytes = kTallest * kSteps * kBlockK;

  // A part of the inputs, by a block.
  struct Part {
    const std::uint8_t* a;
    const std::int8_t* b;
    std::size_t steps;
    bool begins, ends;
    int32x4_t* sums;  // of the inputs before
  };
  using Tile = void (*)(const ProductTile&, const Part&);

  template <int R, bool turned>
  static void tile(const ProductTile& t, const Part& part) {
    MatrixSums<R> acc;
    if (part.begins) acc.clear();
    else acc.load(part.sums);
    acc.template add<turned>(part.a, Product<NeonDot>::row_bytes(t.g), part.b, part.steps);
    if (!part.ends) return acc.store(part.sums);
    int32x4_t v[R * 4];
    acc.rows(v);
    if (t.plain(1)) {
      correct(t, v, Sequence<R>{}, Sequence<4>{});
      return TileOutput<NeonDot, R, 4, true>::store(t, v);
    }
    for (std::size_t c = 0; c < 4; ++c) finish_rows<NeonDot>(t.g, t.block * kBlockN + c * 4, t.row, R, v + c, 4);
  }

  // Less zero points times column sums, which take fewer instructions whole than as pairs.
  template <int... r, int... c>
  static OCTAVO_INLINE void correct(const ProductTile& t, int32x4_t* v, Indices<r...>, Indices<c...> columns) {
    const int32x4_t sums[] = {column_sums(t.g.weight.colsum + t.block * kBlockN + 4 * c)...};
    (correct_row(v + 4 * r, sums, t.g.quant[t.row + r].pair, columns), ...);
  }
  template <int... c>
  static OCTAVO_INLINE void correct_row(int32x4_t* v, const int32x4_t (&sums)[4], std::int32_t pair, Indices<c...>) {
    const std::int32_t zero = static_cast<std::int16_t>(pair);
    ((v[c] = vmlaq_n_s32(v[c], sums[c], zero)), ...);
  }
  static OCTAVO_INLINE int32x4_t column_sums(const std::int32_t* pairs) {
    const int32x4_t p = vld1q_s32(pairs);
    return vmlal_n_s16(vmovl_s16(vmovn_s32(p)), vshrn_n_s32(p, 16), 128);
  }

  static constexpr Tile kPlain[] = {tile<1, false>, tile<2, false>, tile<3, false>, tile<4, false>, tile<5, false>, tile<6, false>};
  static constexpr Tile kTurned[] = {tile<1, true>, tile<2, true>, tile<3, true>, tile<4, true>, tile<5, true>, tile<6, true>};
  using Turn = void (*)(const std::uint8_t*, std::size_t, std::size_t, std::uint8_t*);
  static constexpr Turn kTurn[] = {MatrixSums<1>::turn, MatrixSums<2>::turn, MatrixSums<3>::turn,
                                   MatrixSums<4>::turn, MatrixSums<5>::turn, MatrixSums<6>::turn};

  // Calls work(i, row, height) for tiles that are as even as they go.
  template <class Work>
  static OCTAVO_INLINE void for_each_tile(std::size_t first, std::size_t last, const Work& work) {
    const std::size_t count = last - first, tiles = (count + kTallest - 1) / kTallest, few = count / tiles, larger = count % tiles;
    for (std::size_t i = 0, row = first; i < tiles; ++i) {
      const std::size_t height = few + (i < larger);
      work(i, row, height);
      row += height;
    }
  }

  static void few_rows(const Gemm& g, std::size_t first, std::size_t last, std::size_t block) {
    const std::size_t stride = Product<NeonDot>::row_bytes(g);
    const std::int8_t* b = g.weight.data + block * g.weight.block_bytes();
    for_each_tile(first, last, [&](std::size_t, std::size_t row, std::size_t height) {
      kPlain[height - 1]({g, row, block}, {g.panel + row * stride, b, steps_of(g.weight.k), true, true, nullptr});
    });
  }

  // Rows first .. last - 1, kRowsAtOnce at most, by kBlocks blocks at most.
  static void rows(const Gemm& g, std::size_t first, std::size_t last, std::size_t block_begin, std::size_t block_end) {
    alignas(kAlign) std::uint8_t inputs[kMostTiles * kTileBytes];
    alignas(kAlign) std::int8_t weights[kSteps * 64];
    int32x4_t sums[kBlocks * kMostTiles * kVectors];
    const std::size_t stride = Product<NeonDot>::row_bytes(g), all = steps_of(g.weight.k);
    std::size_t step = 0;
    do {
      const std::size_t steps = all - step < kSteps ? all - step : kSteps;
      const bool begins = step == 0, ends = step + steps == all;
      for_each_tile(first, last, [&](std::size_t i, std::size_t row, std::size_t height) {
        kTurn[height - 1](g.panel + row * stride + step * kBlockK, stride, steps, inputs + i * kTileBytes);
      });
      for (std::size_t block = block_begin; block < block_end; ++block) {
        TwoSteps::turn(g.weight.data + block * g.weight.block_bytes() + step * 64, steps, weights);
        int32x4_t* of_block = sums + (block - block_begin) * kMostTiles * kVectors;
        for_each_tile(first, last, [&](std::size_t i, std::size_t row, std::size_t height) {
          kTurned[height - 1]({g, row, block}, {inputs + i * kTileBytes, weights, steps, begins, ends, of_block + i * kVectors});
        });
      }
      step += steps;
    } while (step < all);
  }

  static void gemm(const Gemm& g) {
    if (g.raw || g.group || g.rows <= kFewRows) return Product<NeonDot>::gemm(g);
    const std::size_t at_once = rows_at_once(g.rows);
    for (std::size_t block = g.block_begin; block < g.block_end; block += kBlocks) {
      const std::size_t end = block + kBlocks < g.block_end ? block + kBlocks : g.block_end;
      for (std::size_t row = 0; row < g.rows; row += at_once) {
        const std::size_t until = row + at_once < g.rows ? row + at_once : g.rows;
        if (until - row > kFewTiles * kTallest) rows(g, row, until, block, end);
        else
          for (std::size_t i = block; i < end; ++i) few_rows(g, row, until, i);
      }
    }
  }
};

// Twenty-four independent sums, of two steps a turn.
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
