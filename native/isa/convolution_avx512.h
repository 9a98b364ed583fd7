// Turning images between planes and channels last with 512-bit vectors: blocks of 16 pixels by 16
// channels.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"
#include "isa/store_channels.h"
#include "isa/transpose_words_avx512.h"
#include "isa/vector_avx512.h"

namespace octavo {
namespace {

inline __mmask16 first_lanes(std::size_t n) { return n >= 16 ? 0xffff : Avx512::first(static_cast<int>(n)); }

struct PixelBlock {
  const QuantizePixels& q;
  std::size_t pixel;
  std::size_t pixels;  // up to 16
  __m512 inverse;
  __m512i zero;
};

// Bytes of 16 pixels (one 32-bit lane each) of four channels; 0 of channels that there are none of.
inline __m512i four_channels(const PixelBlock& p, std::size_t channel) {
  const __mmask16 pixels = first_lanes(p.pixels);
  __m512i v[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
  for (std::size_t i = 0; i < 4 && channel + i < p.q.channels; ++i) {
    const __m512 x = _mm512_maskz_loadu_ps(pixels, p.q.x + (channel + i) * p.q.channel_stride + p.pixel);
    v[i] = _mm512_add_epi32(_mm512_cvtps_epi32(_mm512_mul_ps(x, p.inverse)), p.zero);
  }
  // The saturating packs clamp to 0..255; a lane of four pixels then holds them channel by channel.
  const __m512i bytes = _mm512_packus_epi16(_mm512_packs_epi32(v[0], v[1]), _mm512_packs_epi32(v[2], v[3]));
  const __m128i by_pixel = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_shuffle_epi8(bytes, _mm512_broadcast_i32x4(by_pixel));
}

// A block's lanes: pixel 4 l + i lies in lane l of b[i].
inline void sixteen_channels(const PixelBlock& p, std::size_t channel, __m512i (&b)[4]) {
  __m512i a[4];
  for (std::size_t i = 0; i < 4; ++i) a[i] = four_channels(p, channel + 4 * i);
  transpose_lanes(a, b);
}

inline void store_block(const PixelBlock& p, std::size_t channel, const __m512i (&b)[4]) {
  std::uint8_t* to = p.q.to + p.pixel * p.q.stride + channel;
  for (std::size_t i = 0; i < 4; ++i) {
    const auto at = [&](std::size_t lane) { return reinterpret_cast<__m128i*>(to + (4 * lane + i) * p.q.stride); };
    _mm_storeu_si128(at(0), _mm512_castsi512_si128(b[i]));
    _mm_storeu_si128(at(1), _mm512_extracti32x4_epi32(b[i], 1));
    _mm_storeu_si128(at(2), _mm512_extracti32x4_epi32(b[i], 2));
    _mm_storeu_si128(at(3), _mm512_extracti32x4_epi32(b[i], 3));
  }
}

inline void store_part(const PixelBlock& p, std::size_t channel, const __m512i (&b)[4]) {
  alignas(64) __m128i lanes_of[4][4];
  for (std::size_t i = 0; i < 4; ++i) _mm512_store_si512(lanes_of[i], b[i]);
  for (std::size_t i = 0; i < p.pixels; ++i)
    store_channels(p.q, p.pixel + i, channel, reinterpret_cast<const std::uint8_t*>(&lanes_of[i % 4][i / 4]));
}

inline void quantize_pixels_avx512(const QuantizePixels& q) {
  __m512i b[4];
  for (std::size_t next = 0; next < q.pixels; next += 16) {
    // The last block goes back over pixels that are done, so that it is whole too.
    const std::size_t first = next + 16 <= q.pixels ? next : q.pixels < 16 ? 0 : q.pixels - 16;
    const std::size_t pixels = q.pixels < 16 ? q.pixels : 16;
    const PixelBlock p{q, first, pixels, _mm512_set1_ps(q.inverse), _mm512_set1_epi32(q.zero_point)};
    const std::size_t whole = pixels == 16 ? q.channels / 16 * 16 : 0;
    // What is no block of 16 by 16 comes first, and the last channels before the others: store_channels.
    for (std::size_t c = round_up(q.channels, 16); c > whole; c -= 16) {
      sixteen_channels(p, c - 16, b);
      store_part(p, c - 16, b);
    }
    for (std::size_t c = 0; c < whole; c += 16) {
      sixteen_channels(p, c, b);
      store_block(p, c, b);
    }
  }
}

// 64 rows at a time: what is read stays in the L1 cache, what is written comes in runs of four lines.
inline void transpose_avx512(const Transpose& t) {
  __m512i v[4];
  for (std::size_t first = 0; first < t.rows; first += 64) {
    const std::size_t last = t.rows - first < 64 ? t.rows : first + 64;
    for (std::size_t c = 0; c < t.columns; c += 4)
      for (std::size_t r = first; r < last; r += 16) {
        transpose_four(t.from + r * t.stride + c, t.stride * sizeof(float), v);
        float* to = t.to + c * t.to_stride + r;
        if (last - r >= 16 && t.columns - c >= 4) {
          for (std::size_t i = 0; i < 4; ++i) _mm512_storeu_si512(to + i * t.to_stride, v[i]);
        } else {
          for (std::size_t i = 0; i < 4 && c + i < t.columns; ++i)
            _mm512_mask_storeu_epi32(to + i * t.to_stride, first_lanes(last - r), v[i]);
        }
      }
  }
}

}  // namespace
}  // namespace octavo
