// e^x for the weights of attention.
#pragma once

namespace octavo {
namespace {

template <class V>
struct Weights {
  using F = typename V::F;
  using I = typename V::I;

  // Of x <= 0, relative error below 2e-7 where the weight matters; 0 below -87.3, so that what is masked weighs
  // nothing at all. NaN stays NaN.
  static inline __attribute__((always_inline)) F exp(F x) {
    const F power = V::mul(x, V::set(1.44269504f)), whole = V::nearest(power);
    const I n = V::round(power);
    const F r = V::sub(power, whole);
    // 2^r over |r| <= 1/2, the least relative error with 1 at 0.
    F p = V::set(0.00132647273f);
    p = V::fma(p, r, V::set(0.00967151299f));
    p = V::fma(p, r, V::set(0.0555073358f));
    p = V::fma(p, r, V::set(0.240222424f));
    p = V::fma(p, r, V::set(0.693147004f));
    p = V::fma(p, r, V::set(1.0f));
    return V::select(V::less(x, V::set(-87.3f)), V::set(0.0f), V::mul(p, V::pow2(n)));
  }
};

}  // namespace
}  // namespace octavo
