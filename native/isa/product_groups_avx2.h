// Weights in groups by AVX2: vpmaddubsw multiplies 4 bits without sign by inputs with one, and eight of its pairs stay within
// int16 (8 * 2 * 15 * 128 = 30,720). 8 bits are two halves of 4, each by itself exact, and the sum of one is 16 times the other's.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "isa/constant_indices.h"
#include "isa/product_groups.h"
#include "isa/product_avx2.h"

namespace octavo {
namespace {

struct Avx2Groups : Avx2Dot {
  static constexpr int kWidestOfWeightGroups = 1;
  static constexpr int tallest_of_groups(int) { return 4; }

  // Keeps what makes this from mixing with what makes the next.
  static OCTAVO_INLINE void apart(F& x) { __asm__ volatile("" : "+x"(x)); }
  template <int bits>
  static OCTAVO_INLINE I zeros(const std::int8_t* p, int part) {
    if constexpr (bits == 8) return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8 * part)));
    const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return _mm256_cvtepu8_epi32(_mm_and_si128(part ? _mm_srli_epi16(eight, 4) : eight, _mm_set1_epi8(15)));
  }

  // N is 2: a block's outputs 0..7 and 8..15.
  template <int bits, int R, int N>
  struct Products {
    static OCTAVO_INLINE void add(I (&acc)[R * N], const std::int8_t* a, std::size_t stride, const std::int8_t* b, std::size_t, std::size_t inputs) {
      for (std::size_t i = 0; i < inputs; i += kInputs) {
        some<0>(acc, a + i, stride, b + i * bits * 2, Sequence<R>{});
        some<1>(acc, a + i, stride, b + i * bits * 2, Sequence<R>{});
      }
    }

   private:
    static constexpr std::size_t kInputs = 32;  // whose products stay within int16

    // 32 inputs by one half of the outputs.
    template <int part, int... r>
    static OCTAVO_INLINE void some(I (&acc)[R * N], const std::int8_t* a, std::size_t stride, const std::int8_t* b, Indices<r...>) {
      const I mask = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
      I first[R] = {(static_cast<void>(r), _mm256_setzero_si256())...}, second[R] = {(static_cast<void>(r), _mm256_setzero_si256())...};
#pragma GCC unroll 1
      for (std::size_t i = 0; i < kInputs; i += bits == 4 ? 8 : 4) {
        const I w = _mm256_loadu_si256(reinterpret_cast<const I*>(b + i * bits * 2 + 32 * part));
        const I low = _mm256_and_si256(w, mask), high = _mm256_and_si256(_mm256_srli_epi16(w, 4), mask);
        if constexpr (bits == 4) {
          ((first[r] = plus(first[r], low, a + r * stride + i)), ...);
          ((first[r] = plus(first[r], high, a + r * stride + i + 4)), ...);
        } else {
          ((first[r] = plus(first[r], low, a + r * stride + i)), ...);
          ((second[r] = plus(second[r], high, a + r * stride + i)), ...);
        }
      }
      ((acc[r * N + part] = _mm256_add_epi32(acc[r * N + part], _mm256_madd_epi16(first[r], ones))), ...);
      if constexpr (bits == 8)
        ((acc[r * N + part] = _mm256_add_epi32(acc[r * N + part], _mm256_madd_epi16(second[r], _mm256_set1_epi16(16)))), ...);
    }
    static OCTAVO_INLINE I plus(I sum, I w, const std::int8_t* x) {
      std::int32_t four;
      __builtin_memcpy(&four, x, 4);
      return _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, set_i(four)));
    }
  };
};

}  // namespace
}  // namespace octavo
