// The exact int8 product on AVX-512 without VNNI: that of product_avx2.h with twice the width, over the same panels.
//
// docs/notes/processors.md: "Twice the width pays without VNNI"
// Six rows by 64 columns fill the 32 registers: 24 sums, 4 of weights, 2 of inputs, a temporary one and the constant.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"
#include "isa/constant_indices.h"
#include "isa/product.h"
#include "isa/quantize_rows_avx2.h"
#include "isa/vector_avx512.h"

namespace octavo {
namespace {

struct Avx512Dot : Avx512 {
  static constexpr int kWidest = 4, kWidestOfGroups = 2, kWidestOfFewGroups = 2;
  static constexpr int tallest(bool groups, int) { return groups ? 5 : 6; }
  static constexpr std::size_t kInputBytes = kCellBytes / kCellK, kAhead = 0, kRowSums = 1;

  struct Inputs {
    I size, mask;
  };
  static OCTAVO_INLINE Inputs inputs(const std::uint8_t* p) { return {set_i(four_bytes(p)), set_i(four_bytes(p + 4))}; }
  static OCTAVO_INLINE void dot(I& sum, const Inputs& x, I w) {
    I t;
    __asm__(
        "vpxord %[w], %[mask], %[t]\n\t"
        "vpmaddubsw %[t], %[size], %[t]\n\t"
        "vpmaddwd %[one], %[t], %[t]\n\t"
        "vpaddd %[t], %[sum], %[sum]"
        : [sum] "+v"(sum), [t] "=&v"(t)
        : [size] "v"(x.size), [mask] "v"(x.mask), [w] "v"(w), [one] "v"(_mm512_set1_epi16(1)));
  }
  static OCTAVO_INLINE void dot_memory(I& sum, const Inputs& x, const std::int8_t* p) { dot(sum, x, load_weights(p)); }
  static OCTAVO_INLINE I load_weights(const std::int8_t* p) {
    I w = _mm512_load_si512(p);
    __asm__("" : "+v"(w));
    return w;
  }
  static OCTAVO_INLINE I start(std::int32_t extra) { return set_i(extra); }
  static std::int32_t extra(const std::uint8_t* cells, std::size_t steps) { return sum_of_negatives(cells, steps); }
  static OCTAVO_INLINE I pair_product(I colsum, I pair) { return _mm512_madd_epi16(colsum, pair); }
  template <class Sum>
  static OCTAVO_INLINE void in_turn(Sum& sum) {
    __asm__ volatile("" : "+v"(sum) : : "memory");
  }
};

// What bounds the above: its four instructions on registers alone.
inline void wide_madd_peak(std::size_t turns) {
  ProductSums<Avx512Dot, 6, 4> acc;
  const RowQuant none{};
  const __m512i one = _mm512_set1_epi8(1), none_negative = _mm512_setzero_si512();
  acc.clear(&none, 0);
  for (std::size_t i = 0; i < turns; ++i)
#pragma GCC unroll 24
    for (auto& x : acc.v) Avx512Dot::dot(x, {one, none_negative}, one);
  acc.keep();
}

}  // namespace
}  // namespace octavo
