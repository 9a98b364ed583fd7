// exp, tanh, erf and the activations made of them, over any vector type of vector_*.h: one sequence of
// IEEE operations for each element, so every instruction set gives the same bits. NaN stays NaN:
// minps and maxps return their second operand where one is NaN, so x stands second.
#pragma once

#include <cstddef>

#include "contract/kernels.h"

namespace octavo {
namespace {

template <class V>
struct Elementwise {
  using F = typename V::F;
  using I = typename V::I;

  // Relative error below 1e-7 for x in -87.3 .. 88.3; clamped beyond.
  static F exp(F x) {
    x = V::max(V::set(-87.3f), V::min(V::set(88.3f), x));
    const I n = V::round(V::mul(x, V::set(1.44269504f)));
    const F whole = V::to_float(n);
    F r = V::fma(whole, V::set(-0.693359375f), x);  // ln 2 in two parts (Cody and Waite)
    r = V::fma(whole, V::set(2.12194440e-4f), r);
    // Least squares of (e^r - 1 - r) / e^r over |r| <= ln(2) / 2.
    F p = V::set(0.0013751389f);
    p = V::fma(p, r, V::set(0.0083689215f));
    p = V::fma(p, r, V::set(0.041669533f));
    p = V::fma(p, r, V::set(0.16666518f));
    p = V::fma(p, r, V::set(0.49999988f));
    p = V::fma(p, r, V::set(1.0f));
    p = V::fma(p, r, V::set(1.0f));
    return V::mul(p, V::pow2(n));
  }

  static F sigmoid(F x) {
    return V::div(V::set(1.0f), V::add(V::set(1.0f), exp(V::sub(V::set(0.0f), x))));
  }

  // Absolute error below 2e-7: an odd polynomial below 0.625, (1 - t) / (1 + t) with
  // t = e^(-2|x|) above.
  static F tanh(F x) {
    const F size = V::abs(x);
    const F t = exp(V::mul(V::set(-2.0f), size));
    const F far = V::div(V::sub(V::set(1.0f), t), V::add(V::set(1.0f), t));
    const F u = V::mul(x, x);
    F p = V::set(-5.70498872745e-3f);
    p = V::fma(p, u, V::set(2.06390887954e-2f));
    p = V::fma(p, u, V::set(-5.37397155531e-2f));
    p = V::fma(p, u, V::set(1.33314422036e-1f));
    p = V::fma(p, u, V::set(-3.33332819422e-1f));
    const F near = V::fma(V::mul(p, u), x, x);
    // NaN is not less: it takes the second branch, where it stays NaN.
    return V::select(V::less(size, V::set(0.625f)), near, V::copysign(far, x));
  }

  // Relative error below 3e-7: x P(2 x^2 / 3.84^2 - 1), P the Chebyshev interpolant of degree 15 of
  // erf(x) / x; +-1 from 3.84 on.
  static F erf(F x) {
    const F v = V::fma(V::mul(x, x), V::set(0.135633677f), V::set(-1.0f));
    F p = V::set(-0.000608735136f);
    p = V::fma(p, v, V::set(0.00148552191f));
    p = V::fma(p, v, V::set(-0.00102676754f));
    p = V::fma(p, v, V::set(0.00175595889f));
    p = V::fma(p, v, V::set(-0.00643970957f));
    p = V::fma(p, v, V::set(0.0119056404f));
    p = V::fma(p, v, V::set(-0.0176304504f));
    p = V::fma(p, v, V::set(0.0273376368f));
    p = V::fma(p, v, V::set(-0.0409531593f));
    p = V::fma(p, v, V::set(0.0563571565f));
    p = V::fma(p, v, V::set(-0.0730024949f));
    p = V::fma(p, v, V::set(0.0907979235f));
    p = V::fma(p, v, V::set(-0.110554576f));
    p = V::fma(p, v, V::set(0.136518598f));
    p = V::fma(p, v, V::set(-0.183765367f));
    p = V::fma(p, v, V::set(0.368239462f));
    const F y = V::mul(x, p);
    return V::select(V::less(V::set(3.84f), V::abs(x)), V::copysign(V::set(1.0f), x), y);
  }

  // Below -100 the three that end at 0 there take x for -100: else x / e^88, or 0 times infinity.
  static F bounded(F x) { return V::max(V::set(-100.0f), x); }

  static F gelu(F x) {
    x = bounded(x);
    const F half = V::mul(x, V::set(0.5f));
    return V::fma(half, erf(V::mul(x, V::set(0.707106781f))), half);
  }

  // x / 2 (1 + tanh z) = x sigmoid(2 z), z = sqrt(2 / pi) (x + 0.044715 x^3)
  static F gelu_tanh(F x) {
    x = bounded(x);
    const F u = V::mul(x, x);
    const F z = V::mul(x, V::fma(u, V::set(-0.0713548163f), V::set(-1.59576912f)));
    return V::div(x, V::add(V::set(1.0f), exp(z)));
  }

  static F silu(F x) {
    x = bounded(x);
    return V::div(x, V::add(V::set(1.0f), exp(V::sub(V::set(0.0f), x))));
  }

  static F relu(F x) { return V::max(V::set(0.0f), x); }

  // Always inlined: where `a` is a constant, nothing of the choice is left.
  static inline __attribute__((always_inline)) F apply(Activation a, F x) {
    switch (a) {
      case Activation::kRelu: return relu(x);
      case Activation::kGelu: return gelu(x);
      case Activation::kGeluTanh: return gelu_tanh(x);
      case Activation::kSilu: return silu(x);
      case Activation::kTanh: return tanh(x);
      case Activation::kSigmoid: return sigmoid(x);
      case Activation::kNone: break;
    }
    return x;
  }

  static void activate(Activation a, float* x, std::size_t n) {
    std::size_t i = 0;
    for (; i + V::kWidth <= n; i += V::kWidth) V::store(x + i, apply(a, V::load(x + i)));
    if (i < n) {
      const int rest = static_cast<int>(n - i);
      V::store_n(x + i, apply(a, V::load_n(x + i, rest)), rest);
    }
  }
};

}  // namespace
}  // namespace octavo
