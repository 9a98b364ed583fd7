// Functions of one and of two elements, softmax and sums of rows, over any vector type of vector_*.h.
#pragma once

#include <cstddef>

#include "contract/kernels.h"
#include "isa/activations.h"
#include "isa/norm_rows.h"

namespace octavo {
namespace {

template <class V>
struct ElementRows {
  using F = typename V::F;
  using E = Elementwise<V>;
  static constexpr std::size_t kWidth = static_cast<std::size_t>(V::kWidth);

  // The polynomial ends at e^-87.3 and e^88.3.
  static F exp(F x) {
    const F within = V::select(V::less(V::set(88.7228f), x), V::set(__builtin_inff()), E::exp(x));
    return V::select(V::less(x, V::set(-87.3f)), V::set(0.0f), within);
  }

  // minps and maxps return their second operand where one is NaN.
  static F larger(F a, F b) { return V::select(V::is_number(a), V::max(a, b), a); }
  static F smaller(F a, F b) { return V::select(V::is_number(a), V::min(a, b), a); }

  template <class Function>
  static void each(const float* x, float* out, std::size_t n, const Function& f) {
    std::size_t i = 0;
    for (; i + kWidth <= n; i += kWidth) V::store(out + i, f(V::load(x + i)));
    if (i == n) return;
    const int rest = static_cast<int>(n - i);
    V::store_n(out + i, f(V::load_n(x + i, rest)), rest);
  }

  static void unary(Unary op, const float* x, float* out, std::size_t n) {
    const F one = V::set(1.0f);
    switch (op) {
      case Unary::kNeg: return each(x, out, n, [](F v) { return V::sub(V::set(-0.0f), v); });
      case Unary::kExp: return each(x, out, n, [](F v) { return exp(v); });
      case Unary::kTanh: return each(x, out, n, [](F v) { return E::tanh(v); });
      case Unary::kSigmoid: return each(x, out, n, [](F v) { return E::sigmoid(v); });
      case Unary::kRelu: return each(x, out, n, [](F v) { return E::relu(v); });
      case Unary::kGelu: return each(x, out, n, [](F v) { return E::gelu(v); });
      case Unary::kGeluTanh: return each(x, out, n, [](F v) { return E::gelu_tanh(v); });
      case Unary::kSilu: return each(x, out, n, [](F v) { return E::silu(v); });
      case Unary::kRsqrt: return each(x, out, n, [one](F v) { return V::div(one, V::sqrt(v)); });
      case Unary::kSqrt: return each(x, out, n, [](F v) { return V::sqrt(v); });
      case Unary::kReciprocal: return each(x, out, n, [one](F v) { return V::div(one, v); });
      case Unary::kAbs: return each(x, out, n, [](F v) { return V::abs(v); });
      case Unary::kErf: return each(x, out, n, [](F v) { return E::erf(v); });
    }
  }

  template <class Function>
  static void both(const BinaryRow& r, const Function& f) {
    if (r.a_step && r.b_step) return both_rows(r, f);
    const F a = V::set(*r.a), b = V::set(*r.b);
    if (r.a_step) return each(r.a, r.out, r.n, [&f, b](F v) { return f(v, b); });
    if (r.b_step) return each(r.b, r.out, r.n, [&f, a](F v) { return f(a, v); });
    const F found = f(a, b);
    for (std::size_t i = 0; i < r.n; ++i) V::store_n(r.out + i, found, 1);
  }
  template <class Function>
  static void both_rows(const BinaryRow& r, const Function& f) {
    std::size_t i = 0;
    for (; i + kWidth <= r.n; i += kWidth) V::store(r.out + i, f(V::load(r.a + i), V::load(r.b + i)));
    if (i == r.n) return;
    const int rest = static_cast<int>(r.n - i);
    V::store_n(r.out + i, f(V::load_n(r.a + i, rest), V::load_n(r.b + i, rest)), rest);
  }

  static void binary(const BinaryRow& r) {
    if (r.n == 0) return;
    switch (r.op) {
      case Binary::kAdd: return both(r, [](F a, F b) { return V::add(a, b); });
      case Binary::kSub: return both(r, [](F a, F b) { return V::sub(a, b); });
      case Binary::kMul: return both(r, [](F a, F b) { return V::mul(a, b); });
      case Binary::kDiv: return both(r, [](F a, F b) { return V::div(a, b); });
      case Binary::kMin: return both(r, [](F a, F b) { return smaller(a, b); });
      case Binary::kMax: return both(r, [](F a, F b) { return larger(a, b); });
    }
  }

  static void softmax(const SoftmaxRows& r) {
    for (std::size_t m = 0; m < r.rows; ++m) softmax_row(r.x + m * r.stride, r.columns, r.out + m * r.out_stride);
  }
  static void softmax_row(const float* x, std::size_t n, float* out) {
    float most = -__builtin_inff();
    std::size_t i = 0;
    F top = V::set(most);
    for (; i + kWidth <= n; i += kWidth) top = V::max(top, V::load(x + i));
    float lanes[kWidth];
    V::store(lanes, top);
    for (const float lane : lanes) most = most > lane ? most : lane;
    for (; i < n; ++i) most = most > x[i] ? most : x[i];
    const F from = V::set(most);
    each(x, out, n, [from](F v) {
      const F d = V::sub(v, from);
      return V::select(V::less(d, V::set(-87.3f)), V::set(0.0f), E::exp(d));
    });
    const F by = V::set(1.0f / Norms<V>::total(out, n));
    each(out, out, n, [by](F v) { return V::mul(v, by); });
  }

  static void row_sums(const RowSums& r) {
    for (std::size_t m = 0; m < r.rows; ++m) r.out[m] = Norms<V>::total(r.x + m * r.stride, r.columns) / r.by;
  }
};

}  // namespace
}  // namespace octavo
