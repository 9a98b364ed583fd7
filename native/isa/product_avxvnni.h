// docs/notes/processors.md: "VNNI on 256 bits is one program in two encodings"
// VNNI on 256 bits: vpdpbusd multiplies 32 uint8 by 32 int8 and adds exactly in int32. It has two encodings: that of AVX-VNNI
// (VEX) and that of AVX512VL (EVEX). Both are made from this source, with the sixteen registers of the first, so that
// what an AVX-VNNI processor runs is tested wherever there is AVX512-VNNI, but for a prefix.
//
// Six rows by 16 columns fill the registers: 12 sums, 2 of weights and an input. The sums go through inline assembly: GCC 12
// spills those of the intrinsics.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "isa/constant_indices.h"
#include "isa/product.h"
#include "isa/vector_avx2.h"

namespace octavo {
namespace {

enum class Encoding { kVex, kEvex };

template <Encoding encoding>
struct AvxVnni : Avx2 {
  static constexpr int kWidest = 1, kWidestOfGroups = 1, kWidestOfFewGroups = 1;
  static constexpr std::size_t kInputBytes = 1, kAhead = 4096, kRowSums = 4;
  static constexpr int tallest(bool, int) { return 6; }

  static OCTAVO_INLINE void dot(I& sum, I x, I w) {
    if constexpr (encoding == Encoding::kVex) __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(x), "x"(w));
    else __asm__("%{evex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(x), "x"(w));
  }
  static OCTAVO_INLINE void dot_memory(I& sum, I x, const std::int8_t* p) {
    const auto& w = *reinterpret_cast<const I*>(p);
    if constexpr (encoding == Encoding::kVex) __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(x), "m"(w));
    else __asm__("%{evex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(x), "m"(w));
  }
  static OCTAVO_INLINE I correct(I sum, I colsum, I pair) {
    if constexpr (encoding == Encoding::kVex) __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum) : "x"(colsum), "x"(pair));
    else __asm__("%{evex%} vpdpwssd %2, %1, %0" : "+x"(sum) : "x"(colsum), "x"(pair));
    return sum;
  }
  static OCTAVO_INLINE I inputs(const std::uint8_t* p) { return set_i(four_bytes(p)); }
  // As Avx512Vnni's.
  static OCTAVO_INLINE I load_weights(const std::int8_t* p) {
    I w = _mm256_load_si256(reinterpret_cast<const I*>(p));
    __asm__("" : "+x"(w));
    return w;
  }
  static OCTAVO_INLINE I start(std::int32_t) { return _mm256_setzero_si256(); }
  static std::int32_t extra(const std::uint8_t*, std::size_t) { return 0; }
  static OCTAVO_INLINE I pair_product(I colsum, I pair) { return _mm256_madd_epi16(colsum, pair); }
  template <class Sum>
  static OCTAVO_INLINE void in_turn(Sum& sum) {
    __asm__ volatile("" : "+x"(sum) : : "memory");
  }
};

}  // namespace
}  // namespace octavo
