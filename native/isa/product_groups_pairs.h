// Weights in groups where an instruction multiplies 4 bits without sign by inputs with one and adds pairs of products in
// int16: eight pairs stay within it (8 * 2 * 15 * 128 = 30,720). 8 bits are two halves of 4, each by itself exact, and the sum of
// one is 16 times the other's. D has
//
//     load_bytes(p)               a vector of weights
//     low(w), high(w)             the halves of its bytes
//     add_pairs(sum, w, x)        adds pairs of products, of halves and inputs
//     sums_of_pairs(x, factor)    the sums of four inputs, times a factor
#pragma once

#include <cstddef>
#include <cstdint>

#include "isa/constant_indices.h"
#include "isa/product.h"
#include "isa/product_groups.h"

namespace octavo {
namespace {

// N vectors of one block.
template <class D, int bits, int R, int N>
struct PairProducts {
  using I = typename D::I;

  static OCTAVO_INLINE void add(I (&acc)[R * N], const std::int8_t* a, std::size_t stride, const std::int8_t* b, std::size_t, std::size_t inputs) {
    for (std::size_t i = 0; i < inputs; i += kInputs) parts(acc, a + i, stride, b + i * bits * 2, Sequence<N>{});
  }

 private:
  static constexpr std::size_t kInputs = 32;  // whose products stay within int16

  // 32 inputs by all outputs, and by one vector of them.
  template <int... part>
  static OCTAVO_INLINE void parts(I (&acc)[R * N], const std::int8_t* a, std::size_t stride, const std::int8_t* b, Indices<part...>) {
    (some<part>(acc, a, stride, b, Sequence<R>{}), ...);
  }
  template <int part, int... r>
  static OCTAVO_INLINE void some(I (&acc)[R * N], const std::int8_t* a, std::size_t stride, const std::int8_t* b, Indices<r...>) {
    I first[R] = {(static_cast<void>(r), D::set_i(0))...}, second[R] = {(static_cast<void>(r), D::set_i(0))...};
#pragma GCC unroll 1
    for (std::size_t i = 0; i < kInputs; i += bits == 4 ? 8 : 4) {
      const I w = D::load_bytes(b + i * bits * 2 + sizeof(I) * part), low = D::low(w), high = D::high(w);
      if constexpr (bits == 4) {
        (D::add_pairs(first[r], low, four(a + r * stride + i)), ...);
        (D::add_pairs(first[r], high, four(a + r * stride + i + 4)), ...);
      } else {
        (D::add_pairs(first[r], low, four(a + r * stride + i)), ...);
        (D::add_pairs(second[r], high, four(a + r * stride + i)), ...);
      }
    }
    ((acc[r * N + part] = D::add_i(acc[r * N + part], D::sums_of_pairs(first[r], 1))), ...);
    if constexpr (bits == 8) ((acc[r * N + part] = D::add_i(acc[r * N + part], D::sums_of_pairs(second[r], 16))), ...);
  }
  static OCTAVO_INLINE I four(const std::int8_t* x) { return D::set_i(four_bytes(x)); }
};

}  // namespace
}  // namespace octavo
