// The exact int8 product on ARM without the dot product: two smull make 16 products of 16 bits, and three pairwise additions
// make four sums of them. Two products of 16 bits may not fit 16 bits: they are added in 32.
//
// Panels hold q - 128 (quantize_rows_neon.h).
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"
#include "isa/constant_indices.h"
#include "isa/product.h"
#include "isa/vector_neon.h"

namespace octavo {
namespace {

struct NeonMull : Neon {
  static constexpr int kWidest = 1, kWidestOfGroups = 1, kWidestOfFewGroups = 1;
  static constexpr int tallest(bool groups, int) { return groups ? 2 : 4; }
  static constexpr std::size_t kInputBytes = 1, kAhead = 0, kRowSums = 1;

  static OCTAVO_INLINE void dot(I& sum, I x, I w) {
    const int8x16_t a = vreinterpretq_s8_s32(x), b = vreinterpretq_s8_s32(w);
    const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b)), high = vmull_high_s8(a, b);
    sum = vaddq_s32(sum, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
  }
  static OCTAVO_INLINE void dot_memory(I& sum, I x, const std::int8_t* w) { dot(sum, x, load_weights(w)); }
  static OCTAVO_INLINE I inputs(const std::uint8_t* p) { return set_i(four_bytes(p)); }
  static OCTAVO_INLINE I load_weights(const std::int8_t* p) { return vreinterpretq_s32_s8(vld1q_s8(p)); }
  static OCTAVO_INLINE I start(std::int32_t) { return set_i(0); }
  static std::int32_t extra(const std::uint8_t*, std::size_t) { return 0; }
  static OCTAVO_INLINE I pair_product(I colsum, I pair) { return correct(set_i(0), colsum, pair); }
  template <class Sum>
  static OCTAVO_INLINE void in_turn(Sum& sum) {
    __asm__ volatile("" : "+w"(sum) : : "memory");
  }
};

}  // namespace
}  // namespace octavo
