// The product with weights in groups. D is a vector type of vector_*.h with
//
//     Products<bits, R, N>::add(acc, a, stride, b, block, inputs)
//                                adds to R rows by N vectors the products of a group: int8 inputs at a, `stride` apart, by
//                                the integers of blocks at b, `block` apart, each 0 .. 2^bits - 1; exact
//     zeros<bits>(p, part)       zero points of a vector of a block
//     kTallest, kWidest          rows and blocks of a tile
//     kOneRow, one_row<bits>(..) whether a single row has a loop of its own, and that
//
// Integers have no sign and inputs have one, which is how x86 multiplies them. So nothing is subtracted for the inputs of
// a group; a row's zero point comes off all its groups at once, by the block's offsets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"
#include "isa/constant_indices.h"
#include "isa/epilogue.h"
#include "isa/product_parts.h"
#include "isa/product_tile.h"

namespace octavo {
namespace {

// What tiles read of a weight.
struct GroupedBlocks {
  const GroupBlock of;
  const WeightFormat format;
  const std::int8_t* data;
  std::size_t stride;  // of the panel

  explicit GroupedBlocks(const Gemm& g)
      : of(g.weight.format, g.weight.k), format(g.weight.format), data(g.weight.data), stride(group_panel_stride(g.weight.format.group, g.weight.k)) {}
  const std::int8_t* block(std::size_t i) const { return data + i * of.bytes; }
  std::size_t group_bytes() const { return of.scales / of.groups; }
};

template <class D, int bits, bool each>
struct GroupProduct {
  using F = typename D::F;
  using I = typename D::I;
  static constexpr int P = static_cast<int>(kBlockN) / D::kWidth;  // vectors of a block
  using Tile = void (*)(const ProductTile&, const GroupedBlocks&);

  template <int R, int C>
  struct Sums {
    static constexpr int N = C * P;
    using Rows = Sequence<R>;
    using Vectors = Sequence<N>;
    F total[R * N];

    OCTAVO_INLINE void clear() { clear(Sequence<R * N>{}); }
    OCTAVO_INLINE void store(F* to) const { store(to, Sequence<R * N>{}); }

    // Group j: of the first row at a and q, `groups` apart; blocks begin at b.
    OCTAVO_INLINE void add(const GroupedBlocks& w, const std::int8_t* b, std::size_t j, const std::int8_t* a, const RowQuant* q) {
      I acc[R * N];
      if (w.format.affine) start_affine(acc, w, b + w.of.zeros + j * w.of.zero_bytes, q, Rows{}, Vectors{});
      else start(acc, w, q, Sequence<R * N>{});
      D::template Products<bits, R, N>::add(acc, a, w.stride, b + j * w.group_bytes(), w.of.bytes, w.format.group);
      finish(acc, w, reinterpret_cast<const std::uint16_t*>(b + w.of.scales) + j * kBlockN, q, Rows{}, Vectors{});
      if (w.format.minimum) add_minima(w, b + w.of.zeros + j * w.of.zero_bytes, q, Rows{}, Vectors{});
    }
    // Of rows with one scale.
    OCTAVO_INLINE void scale(const GroupedBlocks& w, const std::int8_t* b, const RowQuant* q) { scale(w, b, q, Rows{}, Vectors{}); }

   private:
    static OCTAVO_INLINE const std::int8_t* at(const GroupedBlocks& w, const std::int8_t* p, int c) {
      return p + static_cast<std::size_t>(c / P) * w.of.bytes;
    }
    template <int... i>
    OCTAVO_INLINE void clear(Indices<i...>) {
      ((total[i] = D::set(0.0f)), ...);
    }
    template <int... i>
    OCTAVO_INLINE void store(F* to, Indices<i...>) const {
      ((to[i] = total[i]), ...);
    }
    template <int... i>
    static OCTAVO_INLINE void start(I (&acc)[R * N], const GroupedBlocks& w, const RowQuant* q, Indices<i...>) {
      ((acc[i] = D::set_i(q[static_cast<std::size_t>(i / N) * w.of.groups].sum * w.format.zero())), ...);
    }
    template <int... r, int... c>
    static OCTAVO_INLINE void start_affine(I (&acc)[R * N], const GroupedBlocks& w, const std::int8_t* p, const RowQuant* q, Indices<r...>, Indices<c...> vectors) {
      const I z[N] = {D::template zeros<bits>(at(w, p, c), c % P)...};
      (start_row<r>(acc, z, D::set_i(q[static_cast<std::size_t>(r) * w.of.groups].pair), vectors), ...);
    }
    template <int r, int... c>
    static OCTAVO_INLINE void start_row(I (&acc)[R * N], const I (&z)[N], I pair, Indices<c...>) {
      ((acc[r * N + c] = D::correct(D::set_i(0), z[c], pair)), ...);
    }
    template <int... r, int... c>
    OCTAVO_INLINE void finish(const I (&acc)[R * N], const GroupedBlocks& w, const std::uint16_t* p, const RowQuant* q, Indices<r...>, Indices<c...> vectors) {
      const F s[N] = {D::load_f16(reinterpret_cast<const std::uint16_t*>(at(w, reinterpret_cast<const std::int8_t*>(p), c)) + (c % P) * D::kWidth)...};
      (finish_row<r>(acc, s, q[static_cast<std::size_t>(r) * w.of.groups].scale, vectors), ...);
    }
    template <int r, int... c>
    OCTAVO_INLINE void finish_row(const I (&acc)[R * N], const F (&s)[N], float scale, Indices<c...>) {
      if constexpr (each) {
        const F x = D::set(scale);
        ((total[r * N + c] = D::fma(D::mul(D::to_float(acc[r * N + c]), x), s[c], total[r * N + c])), ...);
      } else {
        ((total[r * N + c] = D::fma(D::to_float(acc[r * N + c]), s[c], total[r * N + c])), ...);
      }
    }
    // The minima at p, times the sums of inputs.
    template <int... r, int... c>
    OCTAVO_INLINE void add_minima(const GroupedBlocks& w, const std::int8_t* p, const RowQuant* q, Indices<r...>, Indices<c...> vectors) {
      const F m[N] = {D::load_f16(reinterpret_cast<const std::uint16_t*>(at(w, p, c)) + (c % P) * D::kWidth)...};
      (add_minima_row<r>(m, q[static_cast<std::size_t>(r) * w.of.groups], vectors), ...);
    }
    template <int r, int... c>
    OCTAVO_INLINE void add_minima_row(const F (&m)[N], const RowQuant& q, Indices<c...>) {
      const F sum = D::set(static_cast<float>(-q.sum)), x = each ? D::mul(sum, D::set(q.scale)) : sum;
      ((total[r * N + c] = D::fma(x, m[c], total[r * N + c])), ...);
    }
    template <int... r, int... c>
    OCTAVO_INLINE void scale(const GroupedBlocks& w, const std::int8_t* b, const RowQuant* q, Indices<r...>, Indices<c...> vectors) {
      const F offset[N] = {D::load(reinterpret_cast<const float*>(at(w, b + w.of.offsets, c)) + (c % P) * D::kWidth)...};
      (scale_row<r>(offset, q[static_cast<std::size_t>(r) * w.of.groups], vectors), ...);
    }
    template <int r, int... c>
    OCTAVO_INLINE void scale_row(const F (&offset)[N], const RowQuant& q, Indices<c...>) {
      const F zero = D::set(static_cast<float>(-q.extra)), x = D::set(q.scale);
      ((total[r * N + c] = D::mul(D::fma(zero, offset[c], total[r * N + c]), x)), ...);
    }
  };

  template <int R, int C>
  static void tile(const ProductTile& t, const GroupedBlocks& w) {
    constexpr int N = C * P;
    const Gemm& g = t.g;
    const std::int8_t* b = w.block(t.block);
    const std::int8_t* a = reinterpret_cast<const std::int8_t*>(g.panel) + t.row * w.stride;
    const RowQuant* q = g.quant + t.row * w.of.groups;
    Sums<R, C> sums;
    sums.clear();
    for (std::size_t j = 0; j < w.of.groups; ++j) sums.add(w, b, j, a + j * w.format.group, q + j);
    if constexpr (!each) sums.scale(w, b, q);
    if (t.plain(C)) return TileOutput<D, R, N, true>::store(t, sums.total);
    F found[R * N];
    sums.store(found);
    for (std::size_t c = 0; c < N; ++c) finish_rows<D>(g, t.block * kBlockN + c * D::kWidth, t.row, R, found + c, N);
  }

  // Of 1 row and more.
  template <int C, int... r>
  static const Tile* tiles(Indices<r...>) {
    static constexpr Tile all[] = {tile<r + 1, C>...};
    return all;
  }

  template <int C>
  static void rows(const Gemm& g, const GroupedBlocks& w, std::size_t first, std::size_t last, std::size_t block) {
    constexpr std::size_t tallest = D::tallest_of_groups(C);
    const std::size_t count = last - first, parts = (count + tallest - 1) / tallest;
    const std::size_t few = count / parts, larger = count % parts;
    const Tile* of = tiles<C>(Sequence<static_cast<int>(tallest)>{});
    for (std::size_t i = 0, row = first; i < parts; ++i) {
      const std::size_t height = few + (i < larger);
      of[height - 1]({g, row, block}, w);
      row += height;
    }
  }

  static void gemm(const Gemm& g) {
    constexpr std::size_t widest = D::kWidestOfWeightGroups;
    const GroupedBlocks w(g);
    const std::size_t tallest = D::tallest_of_groups(static_cast<int>(widest));
    const WeightParts parts(g.weight, g.block_begin, g.block_end, (g.rows + tallest - 1) / tallest, widest, 8);
    const std::size_t at_once = rows_at_once(g.rows);
    for (std::size_t first = g.block_begin; first < g.block_end; first += parts.blocks) {
      const std::size_t last = first + parts.blocks < g.block_end ? first + parts.blocks : g.block_end;
      for (std::size_t row = 0; row < g.rows; row += at_once) {
        const std::size_t until = row + at_once < g.rows ? row + at_once : g.rows;
        std::size_t block = first;
        for (; block + widest <= last; block += widest) rows<static_cast<int>(widest)>(g, w, row, until, block);
        for (; block < last; ++block) rows<1>(g, w, row, until, block);
      }
    }
  }
};

template <class D, int bits>
void gemm_of_groups(const Gemm& g) {
  g.group ? GroupProduct<D, bits, true>::gemm(g) : GroupProduct<D, bits, false>::gemm(g);
}

}  // namespace
}  // namespace octavo
