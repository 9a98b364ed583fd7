// transpose_words.h with 256-bit vectors.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"

namespace octavo {
namespace {

// Four words of 8 rows, as those of 16 with wider vectors.
inline void transpose_four(const std::int8_t* from, std::size_t stride, __m256i (&out)[4]) {
  __m256i v[4];
  for (std::size_t i = 0; i < 4; ++i)
    v[i] = _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(from + (i + 4) * stride),
                               reinterpret_cast<const __m128i*>(from + i * stride));
  const __m256i low01 = _mm256_unpacklo_epi32(v[0], v[1]), high01 = _mm256_unpackhi_epi32(v[0], v[1]);
  const __m256i low23 = _mm256_unpacklo_epi32(v[2], v[3]), high23 = _mm256_unpackhi_epi32(v[2], v[3]);
  out[0] = _mm256_unpacklo_epi64(low01, low23);
  out[1] = _mm256_unpackhi_epi64(low01, low23);
  out[2] = _mm256_unpacklo_epi64(high01, high23);
  out[3] = _mm256_unpackhi_epi64(high01, high23);
}

struct Avx2Words {
  template <bool streamed>
  static void tile(const std::int8_t* from, std::size_t stride, std::int8_t* to, std::size_t to_stride, std::size_t) {
    for (std::size_t j = 0; j < 4; ++j) {
      __m256i low[4], high[4];
      transpose_four(from + 16 * j, stride, low);
      transpose_four(from + 16 * j + 8 * stride, stride, high);
      for (std::size_t i = 0; i < 4; ++i, to += to_stride) {
        auto* at = reinterpret_cast<__m256i*>(to);
        if (streamed) {
          _mm256_stream_si256(at, low[i]);
          _mm256_stream_si256(at + 1, high[i]);
        } else {
          _mm256_storeu_si256(at, low[i]);
          _mm256_storeu_si256(at + 1, high[i]);
        }
      }
    }
  }

  static void stream_line(std::int8_t* to, const std::int8_t* from) {
    for (std::size_t i = 0; i < kAlign; i += 32)
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i)));
  }
  static void end_of_streams() { _mm_sfence(); }
};

}  // namespace
}  // namespace octavo
