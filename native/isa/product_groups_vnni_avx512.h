// Weights in groups by VNNI on 512 bits: vpdpbusd takes them as they are, without sign, by inputs with one, and spreads
// four of these from memory.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "isa/constant_indices.h"
#include "isa/group_zeros_avx512.h"
#include "isa/product_groups.h"
#include "isa/product_vnni_avx512.h"

namespace octavo {
namespace {

struct Avx512Groups : Avx512Vnni {
  static constexpr int kWidestOfWeightGroups = 2;
  static constexpr int tallest_of_groups(int blocks) { return blocks == 1 ? 4 : 6; }

  using Avx512Vnni::dot;  // of weights, which have no sign, by inputs
  static OCTAVO_INLINE void dot(I& sum, I w, const std::int8_t* x) {
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*reinterpret_cast<const Four*>(x)));
  }

  // Keeps what makes this from mixing with what makes the next.
  static OCTAVO_INLINE void apart(F& x) { __asm__ volatile("" : "+v"(x)); }
  template <int bits>
  static OCTAVO_INLINE I zeros(const std::int8_t* p, int) {
    return group_zeros<bits>(p);
  }

  template <int bits, int R, int N>
  struct Products {
    using Rows = Sequence<R>;
    using Vectors = Sequence<N>;
    static OCTAVO_INLINE void add(I (&acc)[R * N], const std::int8_t* a, std::size_t stride, const std::int8_t* b, std::size_t block, std::size_t inputs) {
      constexpr std::size_t step = bits == 4 ? 8 : 4;
      for (std::size_t i = 0; i < inputs; i += step) {
        if constexpr (bits == 4) add_nibbles(acc, a + i, stride, b + i * 8, block, Rows{}, Vectors{});
        else add_bytes(acc, a + i, stride, b + i * 16, block, Rows{}, Vectors{});
      }
    }

   private:
    template <int... r, int... c>
    static OCTAVO_INLINE void add_nibbles(I (&acc)[R * N], const std::int8_t* a, std::size_t stride, const std::int8_t* b, std::size_t block, Indices<r...>,
                                          Indices<c...> vectors) {
      const I mask = _mm512_set1_epi8(15);
      const I w[N] = {weights(b + c * block)...};
      const I low[N] = {_mm512_and_si512(w[c], mask)...}, high[N] = {_mm512_and_si512(_mm512_srli_epi16(w[c], 4), mask)...};
      (row<r>(acc, low, a + r * stride, vectors), ...);
      (row<r>(acc, high, a + r * stride + 4, vectors), ...);
    }
    template <int... r, int... c>
    static OCTAVO_INLINE void add_bytes(I (&acc)[R * N], const std::int8_t* a, std::size_t stride, const std::int8_t* b, std::size_t block, Indices<r...>,
                                        Indices<c...> vectors) {
      const I w[N] = {weights(b + c * block)...};
      (row<r>(acc, w, a + r * stride, vectors), ...);
    }
    template <int r, int... c>
    static OCTAVO_INLINE void row(I (&acc)[R * N], const I (&w)[N], const std::int8_t* x, Indices<c...>) {
      if constexpr (N == 1) {
        dot(acc[r], w[0], x);
      } else {
        const I spread = set_i(four_bytes(x));
        (dot(acc[r * N + c], w[c], spread), ...);
      }
    }
  };

 private:
  struct __attribute__((packed, may_alias)) Four {
    std::int32_t value;
  };
  static OCTAVO_INLINE I weights(const std::int8_t* p) {
    I w = _mm512_loadu_si512(p);
    __asm__("" : "+v"(w));
    return w;
  }
};

}  // namespace
}  // namespace octavo
