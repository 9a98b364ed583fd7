// What sums become outputs by, over any vector type of vector_*.h: zero points off, scales, bias, activation,
// factor, residual, in one order of operations.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"
#include "isa/activations.h"

namespace octavo {
namespace {

// What one column part (kWidth columns) of the output needs, kept in registers over many rows.
template <class V>
struct Epilogue {
  using F = typename V::F;
  using I = typename V::I;

  F scale, bias;
  I colsum, zero;

  const Gemm& g;
  std::size_t column;
  int columns;  // valid ones, up to kWidth

  inline __attribute__((always_inline)) Epilogue(const Gemm& gemm, std::size_t first, std::size_t section)
      : g(gemm), column(first),
        columns(first >= gemm.weight.n ? 0
                : gemm.weight.n - first < V::kWidth ? static_cast<int>(gemm.weight.n - first)
                                                    : V::kWidth) {
    scale = V::load(g.weight.scale + column);
    colsum = V::load_i(g.weight.colsum + section * g.weight.padded_n() + column);
    zero = g.weight.zero ? V::load_i(g.weight.zero + column) : V::set_i(0);
    bias = g.bias && g.bias_stride == 0 && columns > 0 ? V::load_n(g.bias + column, columns) : V::set(0.0f);
  }

  // The exact sum less its zero points.
  I exact(I acc, const RowQuant& q) const {
    // docs/notes/processors.md: "One instruction subtracts the zero point"
    acc = V::correct(acc, colsum, V::set_i(q.pair));
    if (g.weight.zero && !g.group) acc = V::sub_i(acc, V::mul_i(zero, V::set_i(q.sum)));
    return acc;
  }

  // docs/notes/processors.md: "A row's scale is applied before the column's"
  F scaled(I t, const RowQuant& q) const { return V::mul(V::to_float(t), V::set(q.scale)); }

  // Rows whose sums are at sums[0], sums[step], ...: integers, or of groups floats, which have their
  // scales already. Inlined, or the members above would be read again for each row.
  template <class Sum>
  inline __attribute__((always_inline)) void rows(std::size_t first, std::size_t count, const Sum* sums, std::size_t step) const {
    if (stored_plain(first, count, sums, step)) return;
    switch (g.activation) {  // once for all rows
      case Activation::kNone: return rows<Activation::kNone>(first, count, sums, step);
      case Activation::kRelu: return rows<Activation::kRelu>(first, count, sums, step);
      case Activation::kGelu: return rows<Activation::kGelu>(first, count, sums, step);
      case Activation::kGeluTanh: return rows<Activation::kGeluTanh>(first, count, sums, step);
      case Activation::kSilu: return rows<Activation::kSilu>(first, count, sums, step);
      case Activation::kTanh: return rows<Activation::kTanh>(first, count, sums, step);
      case Activation::kSigmoid: return rows<Activation::kSigmoid>(first, count, sums, step);
    }
  }

 private:
  // Nothing but scales and a bias, all columns there: the hot case.
  bool plain() const {
    return g.activation == Activation::kNone && !g.factor && !g.residual && !g.weight.zero && columns == V::kWidth;
  }
  bool stored_plain(std::size_t first, std::size_t count, const I* sums, std::size_t step) const {
    if (!plain()) return false;
    for (std::size_t r = 0; r < count; ++r) store_plain(sums[r * step], g.quant[first + r], first + r);
    return true;
  }
  bool stored_plain(std::size_t, std::size_t, const F*, std::size_t) const { return false; }
  void store_plain(I acc, const RowQuant& q, std::size_t row) const {
    const F f = scaled(V::correct(acc, colsum, V::set_i(q.pair)), q);
    const F b = g.bias_stride ? V::load(g.bias + row * g.bias_stride + column) : bias;
    V::store(g.out + row * g.out_stride + column, V::fma(f, scale, b));
  }
  template <Activation a, class Sum>
  void rows(std::size_t first, std::size_t count, const Sum* sums, std::size_t step) const {
    for (std::size_t r = 0; r < count; ++r) {
      const F f = with_scale(sums[r * step], first + r);
      store(Elementwise<V>::apply(a, V::fma(f, scale, bias_of(first + r))), first + r);
    }
  }
  F with_scale(I acc, std::size_t row) const { return scaled(exact(acc, g.quant[row]), g.quant[row]); }
  F with_scale(F f, std::size_t) const { return f; }
  F bias_of(std::size_t row) const {
    return g.bias_stride ? V::load_n(g.bias + row * g.bias_stride + column, columns) : bias;
  }
  void store(F y, std::size_t row) const {
    if (g.factor) y = V::mul(y, V::load_n(g.factor + row * g.factor_stride + column, columns));
    if (g.residual) y = V::add(y, V::load_n(g.residual + row * g.residual_stride + column, columns));
    V::store_n(g.out + row * g.out_stride + column, y, columns);
  }
};

// One more group of a row: `sum` is its exact integers, less nothing yet.
template <class V>
// docs/notes/processors.md: "Both zero points of a group come off in one instruction"
inline __attribute__((always_inline)) typename V::F group_added(typename V::F total, typename V::I sum, typename V::I colsum,
                                                                typename V::I pair, typename V::F scale) {
  return V::fma(V::to_float(V::correct(sum, colsum, pair)), scale, total);
}

// Rows of one column part as integers of a chunk.
template <class V>
void finish_raw_rows(const Gemm& g, std::size_t column, std::size_t first, std::size_t count, const typename V::I* sums,
                     std::size_t step) {
  const Epilogue<V> of(g, column, g.chunk);
  for (std::size_t r = 0; r < count; ++r)
    V::store_i_n(g.raw + (first + r) * g.raw_stride + column, V::correct(sums[r * step], of.colsum, V::set_i(g.quant[first + r].pair)), of.columns);
}

// Rows of one column part whose sums (integers, or floats of groups) are at sums[0], sums[step], ... Not
// inlined, so that the activations are in the program once for each instruction set.
template <class V, class Sum>
__attribute__((noinline)) void finish_rows(const Gemm& g, std::size_t column, std::size_t first, std::size_t count,
                                           const Sum* sums, std::size_t step) {
  Epilogue<V>(g, column, 0).rows(first, count, sums, step);
}

}  // namespace
}  // namespace octavo
