// Weights in groups by AVX2, as product_groups_pairs.h has it.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "isa/product_avx2.h"
#include "isa/product_groups_pairs.h"

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

  // What PairProducts takes.
  static OCTAVO_INLINE I load_bytes(const std::int8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const I*>(p)); }
  static OCTAVO_INLINE I low(I w) { return _mm256_and_si256(w, _mm256_set1_epi8(15)); }
  static OCTAVO_INLINE I high(I w) { return low(_mm256_srli_epi16(w, 4)); }
  // Inline assembly, for GCC 12 spills the sums of the intrinsics.
  static OCTAVO_INLINE void add_pairs(I& sum, I w, I x) {
    I t;
    __asm__(
        "vpmaddubsw %[x], %[w], %[t]\n\t"
        "vpaddw %[t], %[sum], %[sum]"
        : [sum] "+x"(sum), [t] "=&x"(t)
        : [w] "x"(w), [x] "x"(x));
  }
  static OCTAVO_INLINE I sums_of_pairs(I x, std::int16_t factor) { return _mm256_madd_epi16(x, _mm256_set1_epi16(factor)); }
  template <int bits, int R, int N>
  using Products = PairProducts<Avx2Groups, bits, R, N>;
};

}  // namespace
}  // namespace octavo
