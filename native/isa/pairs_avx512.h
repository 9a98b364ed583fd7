// Products of bfloat16 by AVX512_BF16, where they are what docs/numbers.md says.
//
// Inline assembly, for the accumulators' sake (product_vnni_avx512.h), and so that the rest of the table needs no such processor.
// docs/notes/processors.md: "Products of bfloat16 are two fused multiply-adds"
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"
#include "isa/constant_indices.h"
#include "isa/vector_avx512.h"
#include "isa/vector_scalar.h"

namespace octavo {
namespace {

struct Avx512Pairs : Avx512 {
  static OCTAVO_INLINE F dot_pairs(F sum, F x, F y) {
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
    return sum;
  }
  // It rounds two vectors into one, the first operand's above; subnormals become 0, as they do in products.
  static OCTAVO_INLINE F pair(F low, F high) {
    const I turn = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2,
                                    17, 1, 16, 0);
    I both;
    __asm__("vcvtne2ps2bf16 %2, %1, %0" : "=v"(both) : "v"(high), "v"(low));
    return _mm512_castsi512_ps(_mm512_permutexvar_epi16(turn, both));
  }
  struct Flushing {  // the instruction always does, and as the reference
    static constexpr bool kExact = true;
    Flushing() {}
  };
};

// Whether this processor's instruction gives the bits of Scalar::dot_pairs: sums whose rounding tells orders and roundings in
// between apart, and sums around the least normal number.
inline bool pairs_are_exact() {
  std::uint32_t state = 1;
  const auto next = [&state] { return state = state * 1664525u + 1013904223u, state >> 8; };
  const auto number = [&next](std::uint32_t exponent, std::uint32_t span) {
    return next() << 31 | (exponent + next() % span) << 23 | (next() & 0x7fffffu);
  };
  for (int round = 0; round < 64; ++round) {
    alignas(64) std::uint32_t x[16], y[16], sum[16], found[16];
    const bool small = round % 2;
    for (int i = 0; i < 16; ++i) {
      x[i] = number(small ? 30 : 120, 12) >> 16 | (number(small ? 30 : 120, 12) & 0xffff0000u);
      y[i] = number(small ? 70 : 120, 28) >> 16 | (number(small ? 70 : 120, 28) & 0xffff0000u);
      sum[i] = number(small ? 0 : 120, small ? 3 : 12);
    }
    const auto load = [](const std::uint32_t* p) { return _mm512_castsi512_ps(_mm512_load_si512(p)); };
    _mm512_store_si512(found, _mm512_castps_si512(Avx512Pairs::dot_pairs(load(sum), load(x), load(y))));
    for (int i = 0; i < 16; ++i) {
      float operands[3];
      __builtin_memcpy(operands, sum + i, 4);
      __builtin_memcpy(operands + 1, x + i, 4);
      __builtin_memcpy(operands + 2, y + i, 4);
      const float expected = Scalar::dot_pairs(operands[0], operands[1], operands[2]);
      if (__builtin_memcmp(&expected, found + i, 4) != 0) return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace octavo
