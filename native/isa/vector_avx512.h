// Sixteen elements at a time, for AVX-512 (F, BW, VL, DQ).
#pragma once

#include <immintrin.h>

#include <climits>
#include <cstdint>

#include "isa/flush_subnormals.h"

namespace octavo {
namespace {

struct Avx512 {
  using F = __m512;
  using I = __m512i;
  using Mask = __mmask16;
  static constexpr int kWidth = 16;

  static Mask first(int n) { return static_cast<Mask>((1u << n) - 1u); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static F load_n(const float* p, int n) { return _mm512_maskz_loadu_ps(first(n), p); }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static void store_n(float* p, F x, int n) { _mm512_mask_storeu_ps(p, first(n), x); }
  static I load_i(const std::int32_t* p) { return _mm512_loadu_si512(p); }
  static void store_i(std::int32_t* p, I x) { _mm512_storeu_si512(p, x); }
  static void store_i_n(std::int32_t* p, I x, int n) { _mm512_mask_storeu_epi32(p, first(n), x); }
  static F set(float x) { return _mm512_set1_ps(x); }
  static I set_i(std::int32_t x) { return _mm512_set1_epi32(x); }

  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F sqrt(F a) { return _mm512_sqrt_ps(a); }
  static F abs(F a) { return _mm512_abs_ps(a); }
  static F copysign(F size, F sign) {
    // 0xd8: the first operand's bits where the mask is 0, the second's where it is 1.
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(_mm512_castps_si512(size),
                                                         _mm512_castps_si512(sign),
                                                         _mm512_set1_epi32(INT32_MIN), 0xd8));
  }
  // x bounded to -most..most (most > 0); a quiet NaN becomes `most` with its sign.
  static F clipped(F x, F most) { return _mm512_range_ps(x, most, 2); }
  static Mask is_number(F a) { return _mm512_cmp_ps_mask(a, a, _CMP_ORD_Q); }
  static Mask less(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  static F select(Mask m, F yes, F no) { return _mm512_mask_blend_ps(m, no, yes); }
  // By the lowest bits, one a lane.
  static F pick(std::uint32_t bits, F yes, F no) { return _mm512_mask_blend_ps(static_cast<Mask>(bits), no, yes); }

  static I add_i(I a, I b) { return _mm512_add_epi32(a, b); }
  static I sub_i(I a, I b) { return _mm512_sub_epi32(a, b); }
  static I mul_i(I a, I b) { return _mm512_mullo_epi32(a, b); }
  static I max_i(I a, I b) { return _mm512_max_epi32(a, b); }
  static I max_unsigned(I a, I b) { return _mm512_max_epu32(a, b); }
  static I bits(F x) { return _mm512_castps_si512(x); }
  // In a register: GCC reads memory again for each operation that can take an operand from there.
  static inline __attribute__((always_inline)) I once(I x) {
    __asm__("" : "+v"(x));
    return x;
  }
  static I round(F x) { return _mm512_cvtps_epi32(x); }
  // The low byte of each.
  static void store_bytes(std::int8_t* p, I x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x)); }
  static std::int32_t sum_of(I x) { return _mm512_reduce_add_epi32(x); }
  static F to_float(I x) { return _mm512_cvtepi32_ps(x); }
  // The low bytes of four, side by side: a's lowest.
  static I bytes(I a, I b, I c, I d) {
    const I low = _mm512_set1_epi32(0xff);
    const I ab = _mm512_or_si512(_mm512_and_si512(a, low), _mm512_slli_epi32(_mm512_and_si512(b, low), 8));
    const I cd = _mm512_or_si512(_mm512_and_si512(c, low), _mm512_slli_epi32(d, 8));
    return _mm512_or_si512(ab, _mm512_slli_epi32(cd, 16));
  }
  static F pow2(I n) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
  }
  static F nearest(F x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F scaled(F x, F n) { return _mm512_scalef_ps(x, n); }
  static I correct(I acc, I colsum, I pair) { return _mm512_add_epi32(acc, _mm512_madd_epi16(colsum, pair)); }
  // 16 sums of 16 lanes each, by halves: lane l and l + 8, then 4, 2, 1.
  static constexpr int kSums = 16;
  static void sums(const F (&x)[kSums][1], float* to) {
    F four[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {  // keys i, i + 4, i + 8, i + 12, a quarter each
      const F a = halves(x[i][0], x[i + 4][0]), b = halves(x[i + 8][0], x[i + 12][0]);
      four[i] = add(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    }
    const F u = pairs(four[0], four[1]), w = pairs(four[2], four[3]);
    store(to, add(_mm512_shuffle_ps(u, w, 0x88), _mm512_shuffle_ps(u, w, 0xdd)));
  }
  static std::int32_t highest(I x) { return _mm512_reduce_max_epi32(x); }
  static std::uint32_t highest_unsigned(I x) { return _mm512_reduce_max_epu32(x); }

  using Half = std::uint16_t;
  static F load_f16(const Half* p) { return _mm512_cvtph_ps(sixteen(p)); }
  static F load_bf16(const Half* p) { return widen_bf16(sixteen(p)); }
  static void store_f16(Half* p, F x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_f16(x)); }
  static void store_bf16(Half* p, F x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_bf16(x)); }
  static F load_f16_n(const Half* p, int n) { return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), p)); }
  static F load_bf16_n(const Half* p, int n) { return widen_bf16(_mm256_maskz_loadu_epi16(first(n), p)); }
  static void store_f16_n(Half* p, F x, int n) { _mm256_mask_storeu_epi16(p, first(n), narrow_f16(x)); }
  static void store_bf16_n(Half* p, F x, int n) { _mm256_mask_storeu_epi16(p, first(n), narrow_bf16(x)); }

  static F pair(F low, F high) {
    const I below = _mm512_srli_epi32(nearest_bf16(low), 16);
    return _mm512_castsi512_ps(_mm512_mask_blend_epi16(0xaaaaaaaau, below, nearest_bf16(high)));
  }
  static F dot_pairs(F sum, F x, F y) {
    const I high = _mm512_set1_epi32(-0x10000);
    const I a = _mm512_castps_si512(x), b = _mm512_castps_si512(y);
    sum = fma(_mm512_castsi512_ps(_mm512_and_si512(a, high)), _mm512_castsi512_ps(_mm512_and_si512(b, high)), sum);
    return fma(_mm512_castsi512_ps(_mm512_slli_epi32(a, 16)), _mm512_castsi512_ps(_mm512_slli_epi32(b, 16)), sum);
  }
  using Flushing = FlushSubnormals;

  static I load_q(const std::int8_t* p) { return _mm512_cvtepi8_epi32(bytes(p)); }
  static I load_q(const std::uint8_t* p) { return _mm512_cvtepu8_epi32(bytes(p)); }
  static I load_q_n(const std::int8_t* p, int n) { return _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(first(n), p)); }
  static I load_q_n(const std::uint8_t* p, int n) { return _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(first(n), p)); }

 private:
  static F halves(F a, F b) { return add(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee)); }
  static F pairs(F a, F b) {
    const __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
    return add(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
  }
  static __m128i bytes(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  static __m256i sixteen(const Half* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static F widen_bf16(__m256i h) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16)); }
  static __m256i narrow_f16(F x) { return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  // Rounded, in the upper halves. Integer arithmetic: AVX512_BF16's conversion flushes subnormals.
  static I nearest_bf16(F x) {
    const I bits = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const I rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const I quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    return _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), rounded, quiet);
  }
  static __m256i narrow_bf16(F x) { return _mm512_cvtepi32_epi16(_mm512_srli_epi32(nearest_bf16(x), 16)); }
};

}  // namespace
}  // namespace octavo
