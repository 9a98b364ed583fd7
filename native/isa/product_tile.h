// A tile of the int8 product, and what its sums become where they go from registers straight to the output; over
// any vector type of vector_*.h. Its columns are the vectors of some blocks of 16, side by side.
// docs/notes/processors.md: "Some sums go from registers to the output"
// docs/notes/processors.md: "Outputs are written along rows"
#pragma once

#include <cstddef>

#include "contract/kernels.h"
#include "isa/constant_indices.h"

namespace octavo {
namespace {

struct ProductTile {
  const Gemm& g;
  std::size_t row, block;             // first of each
  const std::int8_t* next = nullptr;  // blocks to prefetch meanwhile, if any
  std::size_t prefetched = 0;         // how many

  const std::uint8_t* a(std::size_t stride) const { return g.panel + row * stride; }
  const std::int8_t* b() const { return g.weight.data + block * g.weight.block_bytes(); }
  float* out(std::size_t r, std::size_t c) const { return g.out + (row + r) * g.out_stride + (block + c) * kBlockN; }

  // Whether nothing but scales, a bias and a residual stands between the sums and the output, and all
  // columns are there: then they go from registers to the output.
  bool plain(std::size_t blocks) const {
    return g.activation == Activation::kNone && !g.factor && !g.weight.zero && (block + blocks) * kBlockN <= g.weight.n;
  }
  // Prefetches the lines of a row's outputs, and of a bias of its own, that its stores would wait for.
  template <std::size_t C>
  OCTAVO_INLINE void prefetch_row(std::size_t r) const {
    for (std::size_t c = 0; c < C; ++c) __builtin_prefetch(out(r, c), 1);
    if (!g.bias_stride) return;
    for (std::size_t c = 0; c < C; ++c) __builtin_prefetch(g.bias + (row + r) * g.bias_stride + (block + c) * kBlockN);
  }
};

// What the sums of a row of a plain() tile become outputs by, in the order of Epilogue. These are copies: what is
// read through the tile would be read again after each store.
template <class V, bool adds>
struct RowOutput {
  using F = typename V::F;
  using I = typename V::I;

  const float *bias, *residual;
  std::size_t bias_stride, residual_stride, out_stride;
  const RowQuant* quant;
  const std::int32_t* colsum;
  float* out;
  F scale;

  OCTAVO_INLINE explicit RowOutput(const ProductTile& t) {
    alignas(64) static const float zeros[4 * kBlockN] = {};
    const Gemm& g = t.g;
    const std::size_t column = t.block * kBlockN;
    bias_stride = g.bias ? g.bias_stride : 0;
    bias = g.bias ? g.bias + t.row * bias_stride + column : zeros;
    residual_stride = g.residual_stride;
    residual = adds ? g.residual + t.row * residual_stride + column : nullptr;
    out_stride = g.out_stride;
    out = t.out(0, 0);
    quant = g.quant + t.row;
    colsum = g.weight.colsum + column;
    scale = V::set(quant->scale);
  }
  OCTAVO_INLINE void next_row() {
    bias += bias_stride;
    if (adds) residual += residual_stride;
    out += out_stride;
    scale = V::set((++quant)->scale);
  }
  // Less zero points times column sums, unless it has begun with them.
  OCTAVO_INLINE void correct(int c, I& sum) const {
    sum = V::correct(sum, V::load_i(colsum + c * V::kWidth), V::set_i(quant->pair));
  }
  OCTAVO_INLINE void correct(int, F&) const {}
  OCTAVO_INLINE void store(int c, I sum, F weight_scale) const { store(c, V::mul(V::to_float(sum), scale), weight_scale); }
  // Of groups, which have their scales already.
  OCTAVO_INLINE void store(int c, F sum, F weight_scale) const {
    const std::size_t at = static_cast<std::size_t>(c) * V::kWidth;
    F y = V::fma(sum, weight_scale, V::load(bias + at));
    if (adds) y = V::add(y, V::load(residual + at));
    V::store(out + at, y);
  }
};

// Writes the sums v of R rows by N vectors, where the tile is plain(). `corrected`: nothing is left to subtract
// from them, as start() began them, or groups did it.
template <class V, int R, int N, bool corrected>
struct TileOutput {
  template <class Sum>
  static OCTAVO_INLINE void store(const ProductTile& t, Sum (&v)[R * N]) {
    if (t.g.residual) rows<true>(t, v, Sequence<R>{}, Sequence<N>{});
    else rows<false>(t, v, Sequence<R>{}, Sequence<N>{});
  }

 private:
  template <bool adds, class Sum, int... r, int... c>
  static OCTAVO_INLINE void rows(const ProductTile& t, Sum (&v)[R * N], Indices<r...>, Indices<c...> columns) {
    const float* scales = t.g.weight.scale + t.block * kBlockN;
    const typename V::F scale[N] = {V::load(scales + c * V::kWidth)...};
    RowOutput<V, adds> to(t);
    (row<r>(to, v, scale, columns), ...);
  }
  // Row after row: GCC would convert all sums before it stores the first.
  template <int r, bool adds, class Sum, int... c>
  static OCTAVO_INLINE void row(RowOutput<V, adds>& to, Sum (&v)[R * N], const typename V::F (&scale)[N], Indices<c...>) {
    if (corrected) (V::in_turn(v[r * N + c]), ...);
    else (to.correct(c, v[r * N + c]), ...);
    (to.store(c, v[r * N + c], scale[c]), ...);
    if (r + 1 < R) to.next_row();
  }
};

}  // namespace
}  // namespace octavo
