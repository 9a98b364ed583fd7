// transpose_words.h with 512-bit vectors.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace octavo {
namespace {

// 4 x 4 words turned within lanes.
inline __attribute__((always_inline)) void transpose_lanes(const __m512i (&v)[4], __m512i (&out)[4]) {
  const __m512i low01 = _mm512_unpacklo_epi32(v[0], v[1]), high01 = _mm512_unpackhi_epi32(v[0], v[1]);
  const __m512i low23 = _mm512_unpacklo_epi32(v[2], v[3]), high23 = _mm512_unpackhi_epi32(v[2], v[3]);
  out[0] = _mm512_unpacklo_epi64(low01, low23);
  out[1] = _mm512_unpackhi_epi64(low01, low23);
  out[2] = _mm512_unpacklo_epi64(high01, high23);
  out[3] = _mm512_unpackhi_epi64(high01, high23);
}

// Four words of 16 rows that lie `stride` bytes apart: word j of all rows becomes out[j]. The rows come as
// lanes i, i + 4, i + 8, i + 12 of vector i, so that turning 4 x 4 within lanes is all there is to do.
inline __attribute__((always_inline)) void transpose_four(const void* from, std::size_t stride, __m512i (&out)[4]) {
  // Every fourth row, and the others by the stride: GCC would keep the distances of all 16, in vectors.
  const char *a = static_cast<const char*>(from), *b = a + 4 * stride, *c = b + 4 * stride, *d = c + 4 * stride;
  __asm__("" : "+r"(b), "+r"(c), "+r"(d));
  const auto four = [](const char* row) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(row)); };
  __m512i v[4];
  for (std::size_t i = 0, at = 0; i < 4; ++i, at += stride) {
    v[i] = _mm512_inserti32x4(_mm512_castsi128_si512(four(a + at)), four(b + at), 1);
    v[i] = _mm512_inserti32x4(_mm512_inserti32x4(v[i], four(c + at), 2), four(d + at), 3);
  }
  transpose_lanes(v, out);
}

struct Avx512Words {
  template <bool streamed>
  static void tile(const std::int8_t* from, std::size_t stride, std::int8_t* to, std::size_t to_stride, std::size_t step) {
    // The next tile, of rows that lie apart, where results stay in the caches (measured once, while developing:
    // 8% of packing 384 x 1536). Of rows side by side, or beside streams, processors read ahead well enough.
    if (!streamed && step < stride)
      for (std::size_t r = 0; r < 16; ++r) __builtin_prefetch(from + r * stride + step);
    for (std::size_t j = 0; j < 4; ++j) {
      __m512i v[4];
      transpose_four(from + 16 * j, stride, v);
      for (std::size_t i = 0; i < 4; ++i, to += to_stride) {
        if (streamed) _mm512_stream_si512(reinterpret_cast<__m512i*>(to), v[i]);
        else _mm512_storeu_si512(to, v[i]);
      }
    }
  }

  static void stream_line(std::int8_t* to, const std::int8_t* from) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
  }
  static void end_of_streams() { _mm_sfence(); }
};

}  // namespace
}  // namespace octavo
