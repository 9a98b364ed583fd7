// The product with weights in groups. D is a vector type of vector_*.h with
//
//     Products<bits, R, N>::add(acc, a, stride, b, block, inputs)
//                                adds to R rows by N vectors the products of a group: int8 inputs at a, `stride` apart, by
//                                the integers of blocks at b, `block` apart, each 0 .. 2^bits - 1; exact
//     zeros<bits>(p, part)       zero points of a vector of a block, less kLess<D, bits>
//     kWidestOfWeightGroups, tallest_of_groups(blocks)
//                                blocks and rows of a tile
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
};

// What Products subtracts of integers before it multiplies them.
template <class D, int bits>
inline constexpr std::int32_t kLess = 0;

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

    // A group, which begins at b in the first block: of the first row at a and q, `groups` apart.
    OCTAVO_INLINE void add(const GroupedBlocks& w, const std::int8_t* b, const std::int8_t* a, const RowQuant* q) {
      I acc[R * N];
      if (w.format.affine) start_affine(acc, w, b + w.of.zeros, q, Rows{}, Vectors{});
      else start(acc, w, q, Sequence<R * N>{});
      D::template Products<bits, R, N>::add(acc, a, w.stride, b, w.of.bytes, w.format.group);
      finish(acc, w, reinterpret_cast<const std::uint16_t*>(b + w.of.scales), q, Rows{}, Vectors{});
      if (w.format.minimum) add_minima(w, b + w.of.zeros, q, Rows{}, Vectors{});
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
      ((acc[i] = D::set_i(q[static_cast<std::size_t>(i / N) * w.of.groups].sum * (w.format.zero() - kLess<D, bits>))), ...);
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
      // Row after row: GCC would convert all sums before it adds the first, and has no registers for them.
      (D::apart(total[r * N + c]), ...);
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
    const std::size_t groups = w.of.groups, bytes = w.of.group_bytes, length = w.format.group;
    Sums<R, C> sums;
    sums.clear();
    const std::int8_t* next = t.next;
    for (std::size_t j = 0; j < groups; ++j, b += bytes, a += length, ++q) {
      // Lines of the next blocks, as many as this tile is to prefetch.
      for (std::size_t i = 0; R > 1 && i < t.prefetched; ++i, next += kAlign) __builtin_prefetch(next, 0, 2);
      sums.add(w, b, a, q);
    }
    b -= groups * bytes;
    q -= groups;
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

  // Blocks first .. last - 1, C at a time, in tiles of rows that are as even as they go: a tile's rows stay in the L1 cache
  // while the blocks pass. Where the first goes, the blocks behind those that it multiplies are prefetched.
  template <int C>
  static void part(const Gemm& g, const GroupedBlocks& w, std::size_t first, std::size_t last) {
    constexpr int tallest = D::tallest_of_groups(C);
    const std::size_t parts = (g.rows + tallest - 1) / tallest, few = g.rows / parts, larger = g.rows % parts;
    const std::size_t lines = (C * w.of.bytes / kAlign + w.of.groups - 1) / w.of.groups;
    const Tile* of = tiles<C>(Sequence<tallest>{});
    for (std::size_t i = 0, row = 0; i < parts; ++i) {
      const std::size_t height = few + (i < larger);
      for (std::size_t block = first; block < last; block += C)
        of[height - 1]({g, row, block, w.block(block + C), i == 0 && block + 2 * C <= g.block_end ? lines : 0}, w);
      row += height;
    }
  }

  // Parts of a weight stay in the L2 cache while rows pass.
  template <int C>
  static std::size_t blocks(const Gemm& g, const GroupedBlocks& w, std::size_t first) {
    const std::size_t fit = part_bytes() / w.of.bytes / C * C, step = fit < C ? C : fit, end = first + (g.block_end - first) / C * C;
    for (; first < end; first += step) part<C>(g, w, first, first + step < end ? first + step : end);
    return end;
  }

  static void gemm(const Gemm& g) {
    const GroupedBlocks w(g);
    std::size_t block = g.block_begin;
    if (g.rows > static_cast<std::size_t>(D::tallest_of_groups(1))) block = blocks<D::kWidestOfWeightGroups>(g, w, block);
    blocks<1>(g, w, block);
  }
};

template <class D, int bits>
void gemm_of_groups(const Gemm& g) {
  g.group ? GroupProduct<D, bits, true>::gemm(g) : GroupProduct<D, bits, false>::gemm(g);
}

}  // namespace
}  // namespace octavo
