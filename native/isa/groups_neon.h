// What ARM's products with weights in groups share: 8 bits are multiplied less 128, so that they fit int8.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "isa/constant_indices.h"
#include "isa/vector_neon.h"

namespace octavo {
namespace {

// D: a dot product.
template <class D>
struct GroupsOfNeon : D {
  using typename D::F;
  using typename D::I;

  // Keeps what makes this from mixing with what makes the next.
  static OCTAVO_INLINE void apart(F& x) { __asm__ volatile("" : "+w"(x)); }
  template <int bits>
  static OCTAVO_INLINE I zeros(const std::int8_t* p, int part) {
    if constexpr (bits == 8) return D::sub_i(D::widen_unsigned(D::four(p + 4 * part)), D::set_i(128));
    const uint8x8_t both = D::four(p + part % 2 * 4);
    return D::widen_unsigned(part < 2 ? vand_u8(both, vdup_n_u8(15)) : vshr_n_u8(both, 4));
  }

  // Four weights each of four outputs: of 4 bits those of a step and of the next, of 8 bits those of one.
  static OCTAVO_INLINE uint8x16_t load_bytes(const std::int8_t* p) { return vld1q_u8(reinterpret_cast<const std::uint8_t*>(p)); }
  static OCTAVO_INLINE I lower(uint8x16_t w) { return vreinterpretq_s32_u8(vandq_u8(w, vdupq_n_u8(15))); }
  static OCTAVO_INLINE I upper(uint8x16_t w) { return vreinterpretq_s32_u8(vshrq_n_u8(w, 4)); }
  static OCTAVO_INLINE I less_128(uint8x16_t w) { return vreinterpretq_s32_u8(veorq_u8(w, vdupq_n_u8(128))); }
};

}  // namespace
}  // namespace octavo
