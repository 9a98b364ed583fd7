// VNNI on 512 bits: vpdpbusd multiplies 64 uint8 by 64 int8 and adds exactly in int32.
//
// The accumulators go through inline assembly: GCC 12 spills those of _mm512_dpbusd_epi32 on every
// iteration, which halves the speed. clang keeps them (`make clang` looks at its loops).
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "isa/constant_indices.h"
#include "isa/product.h"
#include "isa/vector_avx512.h"

namespace octavo {
namespace {

struct Avx512Vnni : Avx512 {
  // Blocks of a tile: of rows with one scale, and of groups, whose sums take twice the registers.
  static constexpr int kWidest = 4, kWidestOfGroups = 2, kWidestOfFewGroups = 3;
  static constexpr std::size_t kInputBytes = 1, kAhead = 0, kRowSums = 4;
  static constexpr int tallest(bool groups, int blocks) { return !groups ? 6 : blocks == 3 ? 4 : 7; }

#if defined(__clang__)
  static OCTAVO_INLINE void dot(I& sum, I x, I w) { sum = _mm512_dpbusd_epi32(sum, x, w); }
  static OCTAVO_INLINE void dot_memory(I& sum, I x, const std::int8_t* w) { dot(sum, x, _mm512_load_si512(w)); }
#else
  static OCTAVO_INLINE void dot(I& sum, I x, I w) { __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w)); }
  static OCTAVO_INLINE void dot_memory(I& sum, I x, const std::int8_t* w) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "m"(*reinterpret_cast<const I*>(w)));
  }
#endif
  static OCTAVO_INLINE I correct(I sum, I colsum, I pair) { return _mm512_dpwssd_epi32(sum, colsum, pair); }
  static OCTAVO_INLINE I inputs(const std::uint8_t* p) { return set_i(four_bytes(p)); }
  // GCC would load it again for each of three rows, which made these 5 to 20% slower (measured once, while developing).
  static OCTAVO_INLINE I load_weights(const std::int8_t* p) {
    I w = _mm512_load_si512(p);
    __asm__("" : "+v"(w));
    return w;
  }
  static OCTAVO_INLINE I start(std::int32_t) { return _mm512_setzero_si512(); }
  static std::int32_t extra(const std::uint8_t*, std::size_t) { return 0; }
  static OCTAVO_INLINE I pair_product(I colsum, I pair) { return _mm512_madd_epi16(colsum, pair); }
  template <class Sum>
  static OCTAVO_INLINE void in_turn(Sum& sum) {
    __asm__ volatile("" : "+v"(sum) : : "memory");
  }
};

}  // namespace
}  // namespace octavo
