// Weights in groups on ARM: sdot takes 4 bits as they are, and 8 bits less 128, by inputs with a sign.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "isa/constant_indices.h"
#include "isa/product_groups.h"
#include "isa/product_neon.h"

namespace octavo {
namespace {

struct NeonGroups : NeonDot {
  static constexpr int kWidestOfWeightGroups = 1;
  static constexpr int tallest_of_groups(int) { return 3; }

  // Keeps what makes this from mixing with what makes the next.
  static OCTAVO_INLINE void apart(F& x) { __asm__ volatile("" : "+w"(x)); }
  template <int bits>
  static OCTAVO_INLINE I zeros(const std::int8_t* p, int part) {
    if constexpr (bits == 8) return sub_i(widen_unsigned(four(p + 4 * part)), set_i(128));
    const uint8x8_t both = four(p + part % 2 * 4);
    return widen_unsigned(part < 2 ? vand_u8(both, vdup_n_u8(15)) : vshr_n_u8(both, 4));
  }

  // N is 4: a block.
  template <int bits, int R, int N>
  struct Products {
    using Rows = Sequence<R>;
    using Vectors = Sequence<N>;
    // 16 inputs at a time: a register of each row's.
    static OCTAVO_INLINE void add(I (&acc)[R * N], const std::int8_t* a, std::size_t stride, const std::int8_t* b, std::size_t, std::size_t inputs) {
      for (std::size_t i = 0; i < inputs; i += 16) some(acc, a + i, stride, b + i * bits * 2, Rows{}, Vectors{});
    }

   private:
    template <int... r, int... c>
    static OCTAVO_INLINE void some(I (&acc)[R * N], const std::int8_t* a, std::size_t stride, const std::int8_t* b, Indices<r...> rows, Indices<c...>) {
      const I x[R] = {vreinterpretq_s32_s8(vld1q_s8(a + r * stride))...};
      if constexpr (bits == 4) {
        (nibbles<0, c>(acc, x, vld1q_u8(weights(b, c)), rows), ...);
        (nibbles<2, c>(acc, x, vld1q_u8(weights(b + 64, c)), rows), ...);
      } else {
        (bytes<0, c>(acc, x, vld1q_u8(weights(b, c)), rows), ...);
        (bytes<1, c>(acc, x, vld1q_u8(weights(b + 64, c)), rows), ...);
        (bytes<2, c>(acc, x, vld1q_u8(weights(b + 128, c)), rows), ...);
        (bytes<3, c>(acc, x, vld1q_u8(weights(b + 192, c)), rows), ...);
      }
    }
    static OCTAVO_INLINE const std::uint8_t* weights(const std::int8_t* b, int c) { return reinterpret_cast<const std::uint8_t*>(b + 16 * c); }
    // The lower halves are of a step, the upper ones of the next.
    template <int step, int c, int... r>
    static OCTAVO_INLINE void nibbles(I (&acc)[R * N], const I (&x)[R], uint8x16_t w, Indices<r...> rows) {
      column<step, c>(acc, x, vandq_u8(w, vdupq_n_u8(15)), rows);
      column<step + 1, c>(acc, x, vshrq_n_u8(w, 4), rows);
    }
    template <int step, int c, int... r>
    static OCTAVO_INLINE void bytes(I (&acc)[R * N], const I (&x)[R], uint8x16_t w, Indices<r...> rows) {
      column<step, c>(acc, x, veorq_u8(w, vdupq_n_u8(128)), rows);
    }
    template <int step, int c, int... r>
    static OCTAVO_INLINE void column(I (&acc)[R * N], const I (&x)[R], uint8x16_t w, Indices<r...>) {
      (dot_step<step>(acc[r * N + c], x[r], vreinterpretq_s32_u8(w)), ...);
    }
  };
};

template <>
inline constexpr bool kFourSteps<NeonGroups> = true;
template <>
inline constexpr std::int32_t kLess<NeonGroups, 8> = 128;

}  // namespace
}  // namespace octavo
