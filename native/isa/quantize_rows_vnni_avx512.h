// Row quantization for VNNI on 512 bits, whose panels hold plain uint8.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"
#include "isa/constant_indices.h"
#include "isa/quantize_rows.h"
#include "isa/vector_avx512.h"

namespace octavo {
namespace {

inline __mmask16 lanes(std::size_t n) { return n >= 16 ? 0xffff : static_cast<__mmask16>((1u << n) - 1u); }

// 64 integers from 64 floats: saturating packs and additions clamp to 0..255 and interleave lanes, one
// permutation puts them right.
inline __m512i to_bytes(const __m512 (&x)[4], __m512 inverse, __m512i zero) {
  __m512i v[4];
  for (int i = 0; i < 4; ++i) v[i] = _mm512_cvtps_epi32(_mm512_mul_ps(x[i], inverse));
  const __m512i low = _mm512_adds_epi16(_mm512_packs_epi32(v[0], v[1]), zero);
  const __m512i high = _mm512_adds_epi16(_mm512_packs_epi32(v[2], v[3]), zero);
  return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), _mm512_packus_epi16(low, high));
}

// Four vectors reduced side by side: lane i of the result is of v[i].
template <class Operation>
OCTAVO_INLINE __m128i across(const __m512i (&v)[4], Operation operation) {
  const __m512i a = operation(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
  const __m512i b = operation(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
  const __m512i four = operation(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
  const __m512i two = operation(four, _mm512_shuffle_i32x4(four, four, 0x4e));
  return _mm512_castsi512_si128(operation(two, _mm512_shuffle_i32x4(two, two, 0xb1)));
}

// Sections (rows, or groups of them) of n inputs each. From one to the next x and `to` go on by stride and to_stride
// elements, quant by quant_stride; `group` as in QuantizeRows.
struct Sections {
  const float* x;
  std::size_t count, n, stride;
  std::uint8_t* to;
  std::size_t to_stride;
  RowQuant* quant;
  std::size_t quant_stride, group;

  Sections part(std::size_t first, std::size_t length) const {
    return {x + first * stride, length, n, stride, to + first * to_stride, to_stride, quant + first * quant_stride, quant_stride, group};
  }
};

// Ranges of up to four sections, a lane each.
struct SectionRanges {
  __m128 scale, inverse;
  __m128i zero_point;
};

// Sections in batches of B, 1 or 4 (`count` is a multiple of it): the ranges of a batch, then its integers. Taking ranges
// waited for the L2 cache, a third of the whole time; making integers waits for the pipes and leaves the cache idle. So
// it prefetches the batch whose ranges are taken next. Both in one loop were as fast as that, and slower where inputs
// come from memory (measured once, while developing, as were the limits).
template <int B, bool adds>
struct Quantizer : Sections {
  using Range = RowRange<Avx512>;

  OCTAVO_INLINE explicit Quantizer(const Sections& s) : Sections(s) {}
  OCTAVO_INLINE void quantize() {
    // Of small batches the L1 cache holds three: the ranges of the next are taken before the integers of this one, which
    // then wait for no division. Of larger ones it holds two, and the largest are not prefetched.
    constexpr std::size_t kSmall = 1536, kLarge = 3072;  // inputs
    const std::size_t batches = count / B, lag = n * B <= kSmall ? 1 : 0;
    const bool prefetches = n * B <= kLarge;
    SectionRanges r[2];
    for (std::size_t i = 0; i < batches + lag; ++i) {
      if (i < batches) r[i % 2] = ranges(i * B, Sequence<B>{});
      if (i >= lag) integers((i - lag) * B, r[(i - lag) % 2], (prefetches && i + 1 < batches ? i + 1 : i - lag) * B, Sequence<B>{});
    }
  }

 private:
  // As Range::from, a lane each; NaN or an infinity gives scale NaN, and an inverse and a zero point of 0.
  template <int... i>
  OCTAVO_INLINE SectionRanges ranges(std::size_t first, Indices<i...>) const {
    const Range::Partial seen[] = {Range::partial(x + (first + i) * stride, n)...};
    // One section: four times the same.
    const __m128i low_bits = across({seen[0].lo, seen[1 % B].lo, seen[2 % B].lo, seen[3 % B].lo},
                                    [](__m512i a, __m512i b) { return _mm512_max_epu32(a, b); });
    const __m128i high_bits = across({seen[0].hi, seen[1 % B].hi, seen[2 % B].hi, seen[3 % B].hi},
                                     [](__m512i a, __m512i b) { return _mm512_max_epi32(a, b); });
    const __mmask8 finite = _mm_cmplt_epu32_mask(low_bits, _mm_set1_epi32(static_cast<std::int32_t>(Range::kMinusInfinity))) &
                            _mm_cmplt_epi32_mask(high_bits, _mm_set1_epi32(Range::kInfinity));
    const __m128 low = _mm_castsi128_ps(low_bits), high = _mm_castsi128_ps(high_bits), most = _mm_set1_ps(255.0f), one = _mm_set1_ps(1.0f);
    __m128 s = _mm_sub_ps(_mm_div_ps(high, most), _mm_div_ps(low, most));
    s = _mm_mask_mov_ps(s, _mm_cmp_ps_mask(s, _mm_set1_ps(1e-30f), _CMP_LT_OQ), one);
    const __m128 inverse = _mm_div_ps(one, s);
    const __m128 z = _mm_round_ps(_mm_mul_ps(_mm_sub_ps(_mm_setzero_ps(), low), inverse), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return {_mm_mask_mov_ps(_mm_set1_ps(__builtin_nanf("")), finite, s), _mm_maskz_mov_ps(finite, inverse),
            _mm_maskz_cvttps_epi32(finite, _mm_min_ps(z, most))};
  }

  // Of a batch, and what goes with them. `next`: the first section to prefetch; where there is none, this one again.
  template <int... i>
  OCTAVO_INLINE void integers(std::size_t first, const SectionRanges& r, std::size_t next, Indices<i...>) const {
    const __m512i sums[] = {section<i>(first + i, r, x + (next + i) * stride)...};
    alignas(16) float scale[4];
    alignas(16) std::int32_t zero_point[4], sum[4];
    _mm_store_ps(scale, r.scale);
    _mm_store_si128(reinterpret_cast<__m128i*>(zero_point), r.zero_point);
    __m128i s = _mm_setzero_si128();
    if (adds) s = across({sums[0], sums[1 % B], sums[2 % B], sums[3 % B]}, [](__m512i a, __m512i b) { return _mm512_add_epi32(a, b); });
    _mm_store_si128(reinterpret_cast<__m128i*>(sum), s);
    for (std::size_t j = 0; j < B; ++j)
      quant[(first + j) * quant_stride] = row_quant(scale[j], zero_point[j], sum[j] - zeros(zero_point[j]), group);
  }

  // What the zero point is in a sum of n. Long rows do not use it, and may be too long for it.
  std::int32_t zeros(std::int32_t zero_point) const {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(n) * static_cast<std::uint32_t>(zero_point));
  }

  // Whole vectors of 64 integers, zeros behind the last; their sums, a lane for four each, if it `adds`. With an inverse
  // and a zero point of 0 all are 0: NaN becomes the lowest integer, which packing clamps to 0.
  template <int lane>
  OCTAVO_INLINE __m512i section(std::size_t which, const SectionRanges& r, const float* next) const {
    const __m512 inverse = _mm512_broadcastss_ps(_mm_permute_ps(r.inverse, lane * 0x55));
    const __m512i zero = _mm512_broadcastw_epi16(_mm_shuffle_epi32(r.zero_point, lane * 0x55)), ones = _mm512_set1_epi8(1);
    const float* from = x + which * stride;
    std::uint8_t* bytes = to + which * to_stride;
    __m512i sum = _mm512_setzero_si512();
    std::size_t at = 0;
    for (; at + 64 <= n; at += 64) {  // what is left of a row is not prefetched
      const __m512 v[4] = {_mm512_loadu_ps(from + at), _mm512_loadu_ps(from + at + 16), _mm512_loadu_ps(from + at + 32), _mm512_loadu_ps(from + at + 48)};
      for (std::size_t j = 0; j < 4; ++j) __builtin_prefetch(next + at + 16 * j);
      const __m512i q = to_bytes(v, inverse, zero);
      _mm512_storeu_si512(bytes + at, q);
      if (adds) sum = _mm512_dpbusd_epi32(sum, q, ones);
    }
    if (at < n) {
      __m512 v[4];
      for (std::size_t j = 0; j < 4; ++j) v[j] = _mm512_maskz_loadu_ps(at + 16 * j < n ? lanes(n - at - 16 * j) : 0, from + at + 16 * j);
      const __m512i q = _mm512_maskz_mov_epi8(~static_cast<__mmask64>(0) >> (64 - (n - at)), to_bytes(v, inverse, zero));
      _mm512_storeu_si512(bytes + at, q);
      if (adds) sum = _mm512_dpbusd_epi32(sum, q, ones);
    }
    return sum;
  }
};

template <bool adds>
inline void quantize_sections(const Sections& s) {
  // docs/notes/processors.md: "Short rows are quantized four at a time"
  constexpr std::size_t kShort = 768;  // up to here four are faster than one
  const std::size_t four = s.n <= kShort ? s.count / 4 * 4 : 0;
  if (four) Quantizer<4, adds>(s.part(0, four)).quantize();
  if (four < s.count) Quantizer<1, adds>(s.part(four, s.count - four)).quantize();
}

template <bool adds>
inline void quantize_all(const QuantizeRows& q) {
  const std::size_t stride = round_up(q.k, kPanelK), groups = groups_of(q.k, q.group);
  if (groups == 1) return quantize_sections<adds>({q.x, q.rows, q.k, q.stride, q.panel, stride, q.quant, 1, q.group});
  const std::size_t whole = q.k / q.group, rest = q.k % q.group;
  // Groups that follow each other without a gap, in the input and in the panel, are one run of sections.
  if (q.rows == 1 || (!rest && q.stride == q.k)) {
    const Sections all{q.x, q.rows * whole, q.group, q.group, q.panel, q.group, q.quant, 1, q.group};
    quantize_sections<adds>(all);
    if (rest) {  // of the only row
      Sections last = all.part(whole, 1);
      last.n = rest;
      quantize_sections<adds>(last);
    }
    return;
  }
  // A group of each row, then the next group, of as many rows as pay for the first batch, which nothing prefetches.
  constexpr std::size_t kRows = 16;
  for (std::size_t m = 0; m < q.rows; m += kRows)
    for (std::size_t g = 0; g < groups; ++g) {
      const std::size_t first = g * q.group, rows = q.rows - m < kRows ? q.rows - m : kRows, n = q.k - first < q.group ? q.k - first : q.group;
      quantize_sections<adds>({q.x + m * q.stride + first, rows, n, q.stride, q.panel + m * stride + first, stride, q.quant + m * groups + g, groups, q.group});
    }
}

inline void quantize_rows(const QuantizeRows& q) { q.sums ? quantize_all<true>(q) : quantize_all<false>(q); }

inline void panel_rows(const PanelRows& p) {
  const std::size_t groups = groups_of(p.k, p.group), stride = round_up(p.k, kPanelK);
  for (std::size_t m = 0; m < p.rows; ++m)
    for_each_group(p.k, p.group, [&](std::size_t g, std::size_t first, std::size_t n) {
      std::int32_t sum = 0;
      for (std::size_t i = 0; i < round_up(n, 64); i += 64) {
        const __mmask64 valid = n - i >= 64 ? ~static_cast<__mmask64>(0) : ~static_cast<__mmask64>(0) >> (64 - (n - i));
        const __m512i q = _mm512_maskz_loadu_epi8(valid, p.q + m * p.stride + first + i);
        _mm512_storeu_si512(p.panel + m * stride + first + i, q);
        if (p.sums) sum += static_cast<std::int32_t>(_mm512_reduce_add_epi64(_mm512_sad_epu8(q, _mm512_setzero_si512())));
      }
      const std::int32_t z = p.zero_point[m * groups + g];
      p.quant[m * groups + g] = row_quant(p.scale[m * groups + g], z, sum - static_cast<std::int32_t>(n) * z, p.group);
    });
}

}  // namespace
}  // namespace octavo
