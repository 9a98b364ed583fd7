// Weights in groups by VNNI on 256 bits, as by 512 (product_groups_vnni_avx512.h), without what spreads inputs from memory.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "isa/constant_indices.h"
#include "isa/product_avxvnni.h"
#include "isa/product_groups.h"
#include "isa/product_groups_avx2.h"

namespace octavo {
namespace {

template <Encoding encoding>
struct AvxVnniGroups : AvxVnni<encoding> {
  using Base = AvxVnni<encoding>;
  using typename Base::F;
  using typename Base::I;
  static constexpr int kWidestOfWeightGroups = 1;
  static constexpr int tallest_of_groups(int) { return 5; }

  // Keeps what makes this from mixing with what makes the next.
  static OCTAVO_INLINE void apart(F& x) { __asm__ volatile("" : "+x"(x)); }
  template <int bits>
  static OCTAVO_INLINE I zeros(const std::int8_t* p, int part) {
    return Avx2Groups::zeros<bits>(p, part);
  }

  // N is 2: a block's outputs 0..7 and 8..15.
  template <int bits, int R, int N>
  struct Products {
    using Rows = Sequence<R>;
    static OCTAVO_INLINE void add(I (&acc)[R * N], const std::int8_t* a, std::size_t stride, const std::int8_t* b, std::size_t, std::size_t inputs) {
      if constexpr (R == 1) {
        I others[N] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
        add(acc, others, a, stride, b, inputs);
        for (int c = 0; c < N; ++c) acc[c] = _mm256_add_epi32(acc[c], others[c]);
      } else {
        add(acc, acc, a, stride, b, inputs);
      }
    }

   private:
    // To sums of every other four inputs: those of one row, which are as many as its outputs, would wait for each other.
    static OCTAVO_INLINE void add(I (&even)[R * N], I (&odd)[R * N], const std::int8_t* a, std::size_t stride, const std::int8_t* b, std::size_t inputs) {
      for (std::size_t i = 0; i < inputs; i += 8, b += bits * 16) {
        const I w[N] = {weights(b), weights(b + sizeof(I))};
        if constexpr (bits == 4) {
          const I mask = _mm256_set1_epi8(15);
          const I low[N] = {_mm256_and_si256(w[0], mask), _mm256_and_si256(w[1], mask)};
          rows(even, low, a + i, stride, Rows{});
          const I high[N] = {_mm256_and_si256(_mm256_srli_epi16(w[0], 4), mask), _mm256_and_si256(_mm256_srli_epi16(w[1], 4), mask)};
          rows(odd, high, a + i + 4, stride, Rows{});
        } else {
          rows(even, w, a + i, stride, Rows{});
          const I next[N] = {weights(b + 2 * sizeof(I)), weights(b + 3 * sizeof(I))};
          rows(odd, next, a + i + 4, stride, Rows{});
        }
      }
    }
    template <int... r>
    static OCTAVO_INLINE void rows(I (&acc)[R * N], const I (&w)[N], const std::int8_t* x, std::size_t stride, Indices<r...>) {
      (row(acc[r * N], acc[r * N + 1], w, x + r * stride), ...);
    }
    static OCTAVO_INLINE void row(I& first, I& second, const I (&w)[N], const std::int8_t* x) {
      const I four = Base::inputs(reinterpret_cast<const std::uint8_t*>(x));
      Base::dot(first, w[0], four);
      Base::dot(second, w[1], four);
    }
  };

 private:
  static OCTAVO_INLINE I weights(const std::int8_t* p) {
    I w = _mm256_loadu_si256(reinterpret_cast<const I*>(p));
    __asm__("" : "+x"(w));
    return w;
  }
};

}  // namespace
}  // namespace octavo
