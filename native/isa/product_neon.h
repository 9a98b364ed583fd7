// The exact int8 product on ARM: sdot multiplies 16 int8 by 16 int8 and adds four at a time in int32.
//
// Panels hold q - 128 (quantize_rows_neon.h). A register of inputs serves four steps: sdot takes four of its bytes for all
// lanes. Six rows by 16 outputs are 24 sums; six registers of inputs and two of weights are the rest of 32.
// docs/notes/processors.md: "Products on ARM"
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

struct NeonDot : Neon {
  static constexpr int kWidest = 1, kWidestOfGroups = 1, kWidestOfFewGroups = 1;
  static constexpr int tallest(bool groups, int) { return groups ? 3 : 6; }
  static constexpr std::size_t kInputBytes = 1, kAhead = 0, kRowSums = 4;

  static OCTAVO_INLINE void dot(I& sum, I x, I w) { sum = vdotq_s32(sum, vreinterpretq_s8_s32(w), vreinterpretq_s8_s32(x)); }
  static OCTAVO_INLINE void dot_memory(I& sum, I x, const std::int8_t* w) { sum = vdotq_s32(sum, vld1q_s8(w), vreinterpretq_s8_s32(x)); }
  // By four of the inputs of four steps.
  template <int step>
  static OCTAVO_INLINE void dot_step(I& sum, I x, I w) {
    sum = vdotq_laneq_s32(sum, vreinterpretq_s8_s32(w), vreinterpretq_s8_s32(x), step);
  }
  static OCTAVO_INLINE I inputs(const std::uint8_t* p) { return set_i(four_bytes(p)); }
  static OCTAVO_INLINE I four_steps(const std::uint8_t* p) { return vreinterpretq_s32_u8(vld1q_u8(p)); }
  static OCTAVO_INLINE I load_weights(const std::int8_t* p) { return vreinterpretq_s32_s8(vld1q_s8(p)); }
  static OCTAVO_INLINE I start(std::int32_t) { return set_i(0); }
  static std::int32_t extra(const std::uint8_t*, std::size_t) { return 0; }
  static OCTAVO_INLINE I pair_product(I colsum, I pair) { return correct(set_i(0), colsum, pair); }
  template <class Sum>
  static OCTAVO_INLINE void in_turn(Sum& sum) {
    __asm__ volatile("" : "+w"(sum) : : "memory");
  }
};

template <>
inline constexpr bool kFourSteps<NeonDot> = true;

}  // namespace
}  // namespace octavo
