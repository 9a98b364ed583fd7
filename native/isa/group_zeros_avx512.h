// The zero points of a block of weights in groups, for 512-bit vectors.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace octavo {
namespace {

template <int bits>
inline __m512i group_zeros(const std::int8_t* p) {
  if constexpr (bits == 8) return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)), low = _mm_set1_epi8(15);
  return _mm512_cvtepu8_epi32(_mm_unpacklo_epi64(_mm_and_si128(eight, low), _mm_and_si128(_mm_srli_epi16(eight, 4), low)));
}

}  // namespace
}  // namespace octavo
