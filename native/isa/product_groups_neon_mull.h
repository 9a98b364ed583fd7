// Weights in groups on ARM without the dot product. Products of 4 bits are small: sixteen of them fit int16, and are added there.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "isa/constant_indices.h"
#include "isa/groups_neon.h"
#include "isa/product_groups.h"
#include "isa/product_neon_mull.h"

namespace octavo {
namespace {

struct MullGroups : GroupsOfNeon<NeonMull> {
  static constexpr int kWidestOfWeightGroups = 1;
  static constexpr int tallest_of_groups(int) { return 3; }

  // N is 4: a block.
  template <int bits, int R, int N>
  struct Products {
    static OCTAVO_INLINE void add(I (&acc)[R * N], const std::int8_t* a, std::size_t stride, const std::int8_t* b, std::size_t, std::size_t inputs) {
      if constexpr (bits == 4)
        for (std::size_t i = 0; i < inputs; i += kInputs) columns(acc, a + i, stride, b + i * 8, Sequence<N>{});
      else
        for (std::size_t i = 0; i < inputs; i += 4) bytes(acc, a + i, stride, b + i * 16, Sequence<R>{}, Sequence<N>{});
    }

   private:
    static constexpr std::size_t kInputs = 32;  // whose products stay within int16: 16 of 15 * 128 meet

    template <int... c>
    static OCTAVO_INLINE void columns(I (&acc)[R * N], const std::int8_t* a, std::size_t stride, const std::int8_t* b, Indices<c...>) {
      (nibbles<c>(acc, a, stride, b + 16 * c, Sequence<R>{}), ...);
    }
    // 32 inputs by 4 outputs: the products of outputs 0 and 1, and of 2 and 3.
    template <int c, int... r>
    static OCTAVO_INLINE void nibbles(I (&acc)[R * N], const std::int8_t* a, std::size_t stride, const std::int8_t* b, Indices<r...>) {
      int16x8_t first[R] = {(static_cast<void>(r), vdupq_n_s16(0))...}, second[R] = {(static_cast<void>(r), vdupq_n_s16(0))...};
#pragma GCC unroll 1
      for (std::size_t i = 0; i < kInputs; i += 8) {
        const uint8x16_t w = load_bytes(b + i * 8);
        (plus(first[r], second[r], a + r * stride + i, lower(w)), ...);
        (plus(first[r], second[r], a + r * stride + i + 4, upper(w)), ...);
      }
      ((acc[r * N + c] = vpadalq_s16(acc[r * N + c], vpaddq_s16(first[r], second[r]))), ...);
    }
    static OCTAVO_INLINE void plus(int16x8_t& first, int16x8_t& second, const std::int8_t* a, I w) {
      const int8x16_t x = vreinterpretq_s8_s32(inputs(reinterpret_cast<const std::uint8_t*>(a))), b = vreinterpretq_s8_s32(w);
      first = vmlal_s8(first, vget_low_s8(x), vget_low_s8(b));
      second = vmlal_high_s8(second, x, b);
    }
    template <int... r, int... c>
    static OCTAVO_INLINE void bytes(I (&acc)[R * N], const std::int8_t* a, std::size_t stride, const std::int8_t* b, Indices<r...>, Indices<c...> vectors) {
      const I w[N] = {less_128(load_bytes(b + 16 * c))...};
      (row<r>(acc, inputs(reinterpret_cast<const std::uint8_t*>(a + r * stride)), w, vectors), ...);
    }
    template <int r, int... c>
    static OCTAVO_INLINE void row(I (&acc)[R * N], I x, const I (&w)[N], Indices<c...>) {
      (dot(acc[r * N + c], x, w[c]), ...);
    }
  };
};

template <>
inline constexpr std::int32_t kLess<MullGroups, 8> = 128;

}  // namespace
}  // namespace octavo
