// The exact int8 product on AVX2.
//
// vpmaddubsw adds pairs of uint8 x int8 products and saturates at int16, which full-range uint8 would
// reach. Panels hold |a| <= 128 (a = q - 128) and the signs as masks (quantize_rows_avx2.h); w ^ mask is w or
// -w - 1, in -128..127, so a pair stays in -32768..32512. The sums start at the row's sum of |a| over negative
// a, which makes good the -1.
//
// A dot product of 32 is four instructions (vpxor, vpmaddubsw, vpmaddwd, vpaddd) that share three
// ports: 24 multiply-accumulates a cycle at most, 1.5 times FMA's 16. Five rows by 16 columns fill
// the sixteen registers: 10 sums, 2 of weights, 3 temporary ones and the constant.
// docs/notes/processors.md: "AVX2 is exact in four instructions"
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"
#include "isa/constant_indices.h"
#include "isa/product.h"
#include "isa/quantize_rows_avx2.h"
#include "isa/vector_avx2.h"

namespace octavo {
namespace {

struct Avx2Dot : Avx2 {
  static constexpr int kWidest = 1, kWidestOfGroups = 1, kWidestOfFewGroups = 1;
  static constexpr int tallest(bool groups, int) { return groups ? 3 : 5; }
  static constexpr std::size_t kInputBytes = kCellBytes / kCellK, kRowSums = 1;
  // Processors do not prefetch on their own across pages, and few rows wait for weights that are in no cache near
  // (measured: 1.3 to 1.8 times the speed at 1 and 4 rows).
  static constexpr std::size_t kAhead = 4096;

  struct Inputs {
    I size, mask;
  };
  static OCTAVO_INLINE Inputs inputs(const std::uint8_t* p) { return {set_i(four_bytes(p)), set_i(four_bytes(p + 4))}; }
#if defined(__clang__)
  static OCTAVO_INLINE void dot(I& sum, const Inputs& x, I w) {
    const I pairs = _mm256_maddubs_epi16(x.size, _mm256_xor_si256(w, x.mask));
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  static OCTAVO_INLINE void dot_memory(I& sum, const Inputs& x, const std::int8_t* p) {
    dot(sum, x, _mm256_load_si256(reinterpret_cast<const I*>(p)));
  }
#else
  // Inline assembly, for GCC 12 spills the sums of the intrinsics.
  static OCTAVO_INLINE void dot(I& sum, const Inputs& x, I w) {
    I t;
    __asm__(
        "vpxor %[w], %[mask], %[t]\n\t"
        "vpmaddubsw %[t], %[size], %[t]\n\t"
        "vpmaddwd %[one], %[t], %[t]\n\t"
        "vpaddd %[t], %[sum], %[sum]"
        : [sum] "+x"(sum), [t] "=&x"(t)
        : [size] "x"(x.size), [mask] "x"(x.mask), [w] "x"(w), [one] "x"(_mm256_set1_epi16(1)));
  }
  static OCTAVO_INLINE void dot_memory(I& sum, const Inputs& x, const std::int8_t* p) {
    I t;
    __asm__(
        "vpxor %[w], %[mask], %[t]\n\t"
        "vpmaddubsw %[t], %[size], %[t]\n\t"
        "vpmaddwd %[one], %[t], %[t]\n\t"
        "vpaddd %[t], %[sum], %[sum]"
        : [sum] "+x"(sum), [t] "=&x"(t)
        : [size] "x"(x.size), [mask] "x"(x.mask), [w] "m"(*reinterpret_cast<const I*>(p)), [one] "x"(_mm256_set1_epi16(1)));
  }
#endif
  static OCTAVO_INLINE I load_weights(const std::int8_t* p) {
    I w = _mm256_load_si256(reinterpret_cast<const I*>(p));
    __asm__("" : "+x"(w));
    return w;
  }
  static OCTAVO_INLINE I start(std::int32_t extra) { return set_i(extra); }
  static std::int32_t extra(const std::uint8_t* cells, std::size_t steps) { return sum_of_negatives(cells, steps); }
  static OCTAVO_INLINE I pair_product(I colsum, I pair) { return _mm256_madd_epi16(colsum, pair); }
  template <class Sum>
  static OCTAVO_INLINE void in_turn(Sum& sum) {
    __asm__ volatile("" : "+x"(sum) : : "memory");
  }
};

// What bounds the above: its four instructions on registers alone.
inline void madd_peak(std::size_t turns) {
  __m256i acc[10];
  const __m256i size = _mm256_set1_epi8(1), mask = _mm256_setzero_si256(), ones = _mm256_set1_epi16(1);
#pragma GCC unroll 10
  for (auto& x : acc) x = _mm256_setzero_si256();
  for (std::size_t i = 0; i < turns; ++i)
#pragma GCC unroll 10
    for (auto& x : acc) {
      __m256i t;
      __asm__(
          "vpxor %2, %3, %1\n\t"
          "vpmaddubsw %1, %2, %1\n\t"
          "vpmaddwd %4, %1, %1\n\t"
          "vpaddd %1, %0, %0"
          : "+x"(x), "=&x"(t)
          : "x"(size), "x"(mask), "x"(ones));
    }
#pragma GCC unroll 10
  for (auto& x : acc) __asm__ volatile("" : : "x"(x));
}

}  // namespace
}  // namespace octavo
