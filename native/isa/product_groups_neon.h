// Weights in groups on ARM with the dot product.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "isa/constant_indices.h"
#include "isa/groups_neon.h"
#include "isa/product_groups.h"
#include "isa/product_neon.h"

namespace octavo {
namespace {

struct NeonGroups : GroupsOfNeon<NeonDot> {
  static constexpr int kWidestOfWeightGroups = 1;
  static constexpr int tallest_of_groups(int) { return 3; }

  // N is 4: a block.
  template <int bits, int R, int N>
  struct Products {
    using Vectors = Sequence<N>;
    // 16 inputs at a time: a register of each row's.
    static OCTAVO_INLINE void add(I (&acc)[R * N], const std::int8_t* a, std::size_t stride, const std::int8_t* b, std::size_t, std::size_t inputs) {
      for (std::size_t i = 0; i < inputs; i += 16) some(acc, a + i, stride, b + i * bits * 2, Sequence<R>{}, Vectors{});
    }

   private:
    template <int... r, int... c>
    static OCTAVO_INLINE void some(I (&acc)[R * N], const std::int8_t* a, std::size_t stride, const std::int8_t* b, Indices<r...> rows, Indices<c...>) {
      const I x[R] = {four_steps(reinterpret_cast<const std::uint8_t*>(a + r * stride))...};
      if constexpr (bits == 4) {
        (nibbles<0, c>(acc, x, load_bytes(b + 16 * c), rows), ...);
        (nibbles<2, c>(acc, x, load_bytes(b + 64 + 16 * c), rows), ...);
      } else {
        (column<0, c>(acc, x, less_128(load_bytes(b + 16 * c)), rows), ...);
        (column<1, c>(acc, x, less_128(load_bytes(b + 64 + 16 * c)), rows), ...);
        (column<2, c>(acc, x, less_128(load_bytes(b + 128 + 16 * c)), rows), ...);
        (column<3, c>(acc, x, less_128(load_bytes(b + 192 + 16 * c)), rows), ...);
      }
    }
    template <int step, int c, int... r>
    static OCTAVO_INLINE void nibbles(I (&acc)[R * N], const I (&x)[R], uint8x16_t w, Indices<r...> rows) {
      column<step, c>(acc, x, lower(w), rows);
      column<step + 1, c>(acc, x, upper(w), rows);
    }
    template <int step, int c, int... r>
    static OCTAVO_INLINE void column(I (&acc)[R * N], const I (&x)[R], I w, Indices<r...>) {
      (dot_step<step>(acc[r * N + c], x[r], w), ...);
    }
  };
};

template <>
inline constexpr std::int32_t kLess<NeonGroups, 8> = 128;

}  // namespace
}  // namespace octavo
