// Row quantization for instruction sets with 256-bit vectors. A writer says what their panels hold.
#pragma once

#include <immintrin.h>

#include <climits>
#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"
#include "isa/quantize_rows.h"
#include "isa/vector_avx2.h"

namespace octavo {
namespace {

constexpr std::size_t kCellK = 4, kCellBytes = 8;  // inputs and bytes of a cell
constexpr std::size_t kPartK = 32;                 // inputs that are written at a time

inline std::int32_t sum_quads(__m256i x) {
  const __m128i half = _mm_add_epi64(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  return static_cast<std::int32_t>(_mm_cvtsi128_si64(half) + _mm_extract_epi64(half, 1));
}

// For AVX2 without VNNI: two bytes an input. With a = q - 128, each 4 inputs are a cell of 8 bytes: |a| four times, then 0xff
// where a < 0 and 0 elsewhere, four times. RowQuant::pair is of z - 128, and RowQuant::extra is the sum of |a| over the
// negative a: what the product in product_avx2.h misses. Padding is a = 0.
struct CellWriter {
  std::uint8_t* to;
  __m256i all = _mm256_setzero_si256(), negative = _mm256_setzero_si256();
  std::int32_t written = 0;

  static std::size_t bytes(std::size_t k) { return k / kCellK * kCellBytes; }  // k: a multiple of 4

  // 32 integers, their words (4 inputs each) in the order 0 2 4 6 1 3 5 7.
  void put(__m256i q) {
    const __m256i zero = _mm256_setzero_si256(), middle = _mm256_set1_epi8(INT8_MIN);
    const __m256i a = _mm256_xor_si256(q, middle), size = _mm256_abs_epi8(a), mask = _mm256_cmpgt_epi8(zero, a);
    all = _mm256_add_epi64(all, _mm256_sad_epu8(q, zero));
    negative = _mm256_add_epi64(negative, _mm256_sad_epu8(_mm256_and_si256(size, mask), zero));
    auto* cells = reinterpret_cast<__m256i*>(to);
    _mm256_storeu_si256(cells, _mm256_permute4x64_epi64(_mm256_unpacklo_epi32(size, mask), 0xd8));
    _mm256_storeu_si256(cells + 1, _mm256_permute4x64_epi64(_mm256_unpackhi_epi32(size, mask), 0xd8));
    to += bytes(kPartK);
    written += static_cast<std::int32_t>(kPartK);
  }

  // Of n inputs with zero point z.
  RowQuant quant(float scale, std::size_t n, std::int32_t z, std::size_t group) const {
    const std::int32_t sum = sum_quads(all) - 128 * written + static_cast<std::int32_t>(n) * (128 - z);
    return row_quant(scale, z - 128, sum, group, sum_quads(negative));
  }
};

// RowQuant::extra of a part of a row's cells.
inline std::int32_t sum_of_negatives(const std::uint8_t* cells, std::size_t count) {
  std::int32_t sum = 0;
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t j = 0; j < kCellK; ++j) sum += cells[i * kCellBytes + j] & cells[i * kCellBytes + kCellK + j];
  return sum;
}

// For VNNI: plain uint8. Padding is 128, and meets weights that are 0.
struct ByteWriter {
  std::uint8_t* to;
  __m256i all = _mm256_setzero_si256();
  std::int32_t written = 0;

  static std::size_t bytes(std::size_t k) { return k; }

  // As CellWriter::put.
  void put(__m256i q) {
    all = _mm256_add_epi64(all, _mm256_sad_epu8(q, _mm256_setzero_si256()));
    const __m256i in_order = _mm256_permutevar8x32_epi32(q, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), in_order);
    to += kPartK;
    written += static_cast<std::int32_t>(kPartK);
  }

  RowQuant quant(float scale, std::size_t n, std::int32_t z, std::size_t group) const {
    const std::int32_t sum = sum_quads(all) - 128 * written + static_cast<std::int32_t>(n) * (128 - z);
    return row_quant(scale, z, sum, group);
  }
};

// 32 integers of 32 floats: saturating packs clamp to 0..255 and leave the words in put's
// order. From `n` on they are 128.
inline __m256i to_bytes(const float* x, int n, __m256 inverse, __m256i zero) {
  __m256i v[4];
  for (int i = 0; i < 4; ++i) {
    const int rest = n - 8 * i;
    const __m256 f = rest > 0 ? Avx2::load_n(x + 8 * i, rest) : _mm256_setzero_ps();
    v[i] = _mm256_add_epi32(_mm256_cvtps_epi32(_mm256_mul_ps(f, inverse)), zero);
    if (rest < 8) v[i] = _mm256_blendv_epi8(_mm256_set1_epi32(128), v[i], Avx2::first(rest));
  }
  return _mm256_packus_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
}

template <class Writer>
struct Avx2Rows {
  static void quantize(const QuantizeRows& q) {
    const std::size_t groups = groups_of(q.k, q.group), stride = Writer::bytes(round_up(q.k, kPanelK));
    for (std::size_t m = 0; m < q.rows; ++m)
      for_each_group(q.k, q.group, [&](std::size_t g, std::size_t first, std::size_t n) {
        q.quant[m * groups + g] = section(q.x + m * q.stride + first, n, q.group, q.panel + m * stride + Writer::bytes(first));
      });
  }

  static void panel(const PanelRows& p) {
    const std::size_t groups = groups_of(p.k, p.group), stride = Writer::bytes(round_up(p.k, kPanelK));
    for (std::size_t m = 0; m < p.rows; ++m)
      for_each_group(p.k, p.group, [&](std::size_t g, std::size_t first, std::size_t n) {
        const std::size_t at = m * groups + g;
        p.quant[at] = panel_section(p.q + m * p.stride + first, n, p.group, p.panel + m * stride + Writer::bytes(first),
                                    p.scale[at], p.zero_point[at]);
      });
  }

 private:
  // n inputs of one scale.
  static RowQuant section(const float* x, std::size_t n, std::size_t group, std::uint8_t* to) {
    const RowScale r = RowRange<Avx2>::scale(x, n);
    if (!r.finite()) {
      __builtin_memset(to, 0, Writer::bytes(round_up(n, kPanelK)));
      return {r.scale, 0, 0, 0};
    }
    const __m256 inverse = _mm256_set1_ps(r.inverse);
    const __m256i zero = _mm256_set1_epi32(r.zero_point);
    Writer writer{to};
    std::size_t i = 0;
    for (; i + kPartK <= n; i += kPartK) writer.put(to_bytes(x + i, kPartK, inverse, zero));
    if (i < n) writer.put(to_bytes(x + i, static_cast<int>(n - i), inverse, zero));
    pad(writer);
    return writer.quant(r.scale, n, r.zero_point, group);
  }
  static RowQuant panel_section(const std::uint8_t* q, std::size_t n, std::size_t group, std::uint8_t* to, float scale, std::int32_t z) {
    const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
    Writer writer{to};
    for (std::size_t i = 0; i < n; i += kPartK) {
      __m256i part = _mm256_set1_epi8(INT8_MIN);
      if (n - i >= kPartK) part = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q + i));
      else __builtin_memcpy(&part, q + i, n - i);
      writer.put(_mm256_permutevar8x32_epi32(part, order));
    }
    pad(writer);
    return writer.quant(scale, n, z, group);
  }
  // Zeros up to a multiple of kPanelK.
  static void pad(const Writer& writer) {
    if (writer.written % static_cast<std::int32_t>(kPanelK)) __builtin_memset(writer.to, 0, Writer::bytes(kPanelK - kPartK));
  }
};

}  // namespace
}  // namespace octavo
