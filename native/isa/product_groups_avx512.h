// Weights in groups by AVX-512 without VNNI, as product_groups_pairs.h has it.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "isa/group_zeros_avx512.h"
#include "isa/product_avx512.h"
#include "isa/product_groups_pairs.h"

namespace octavo {
namespace {

struct Avx512PairGroups : Avx512Dot {
  static constexpr int kWidestOfWeightGroups = 1;
  static constexpr int tallest_of_groups(int) { return 8; }

  // Keeps what makes this from mixing with what makes the next.
  static OCTAVO_INLINE void apart(F& x) { __asm__ volatile("" : "+v"(x)); }
  template <int bits>
  static OCTAVO_INLINE I zeros(const std::int8_t* p, int) {
    return group_zeros<bits>(p);
  }

  // What PairProducts takes.
  static OCTAVO_INLINE I load_bytes(const std::int8_t* p) { return _mm512_loadu_si512(p); }
  static OCTAVO_INLINE I low(I w) { return _mm512_and_si512(w, _mm512_set1_epi8(15)); }
  static OCTAVO_INLINE I high(I w) { return low(_mm512_srli_epi16(w, 4)); }
  // Inline assembly, for GCC 12 spills the sums of the intrinsics.
  static OCTAVO_INLINE void add_pairs(I& sum, I w, I x) {
    I t;
    __asm__(
        "vpmaddubsw %[x], %[w], %[t]\n\t"
        "vpaddw %[t], %[sum], %[sum]"
        : [sum] "+v"(sum), [t] "=&v"(t)
        : [w] "v"(w), [x] "v"(x));
  }
  static OCTAVO_INLINE I sums_of_pairs(I x, std::int16_t factor) { return _mm512_madd_epi16(x, _mm512_set1_epi16(factor)); }
  template <int bits, int R, int N>
  using Products = PairProducts<Avx512PairGroups, bits, R, N>;
};

}  // namespace
}  // namespace octavo
