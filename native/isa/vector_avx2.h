// Eight elements at a time, for AVX2, FMA and F16C.
#pragma once

#include <immintrin.h>

#include <climits>
#include <cstddef>
#include <cstdint>

#include "isa/flush_subnormals.h"

namespace octavo {
namespace {

struct Avx2 {
  using F = __m256;
  using I = __m256i;
  using Mask = __m256;
  static constexpr int kWidth = 8;

  static I first(int n) {  // all ones in the first n lanes
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static F load_n(const float* p, int n) { return n >= kWidth ? load(p) : _mm256_maskload_ps(p, first(n)); }
  static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static void store_n(float* p, F x, int n) {  // a masked store takes long on some processors
    if (n >= kWidth) store(p, x);
    else _mm256_maskstore_ps(p, first(n), x);
  }
  static I load_i(const std::int32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static void store_i(std::int32_t* p, I x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x); }
  static void store_i_n(std::int32_t* p, I x, int n) { _mm256_maskstore_epi32(p, first(n), x); }
  static F set(float x) { return _mm256_set1_ps(x); }
  static I set_i(std::int32_t x) { return _mm256_set1_epi32(x); }

  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F min(F a, F b) { return _mm256_min_ps(a, b); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static F sqrt(F a) { return _mm256_sqrt_ps(a); }
  static F sign_bit() { return _mm256_castsi256_ps(_mm256_set1_epi32(INT32_MIN)); }
  static F abs(F a) { return _mm256_andnot_ps(sign_bit(), a); }
  static F copysign(F size, F sign) {
    return _mm256_or_ps(_mm256_andnot_ps(sign_bit(), size), _mm256_and_ps(sign_bit(), sign));
  }
  static F clipped(F x, F most) { return copysign(min(abs(x), most), x); }  // as avx512: minps gives `most` for a NaN
  static Mask is_number(F a) { return _mm256_cmp_ps(a, a, _CMP_ORD_Q); }
  static Mask less(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
  static F select(Mask m, F yes, F no) { return _mm256_blendv_ps(no, yes, m); }
  // By the lowest bits, one a lane.
  static F pick(std::uint32_t bits, F yes, F no) {
    const I each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const I set = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<std::int32_t>(bits)), each), each);
    return _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(set));
  }

  static I add_i(I a, I b) { return _mm256_add_epi32(a, b); }
  static I sub_i(I a, I b) { return _mm256_sub_epi32(a, b); }
  static I mul_i(I a, I b) { return _mm256_mullo_epi32(a, b); }
  static I max_i(I a, I b) { return _mm256_max_epi32(a, b); }
  static I max_unsigned(I a, I b) { return _mm256_max_epu32(a, b); }
  static I bits(F x) { return _mm256_castps_si256(x); }
  // In a register: GCC reads memory again for each operation that can take an operand from there.
  static inline __attribute__((always_inline)) I once(I x) {
    __asm__("" : "+x"(x));
    return x;
  }
  // -128..127 as bytes.
  static void store_bytes(std::int8_t* p, I x) {
    const I words = _mm256_packs_epi32(x, x), bytes = _mm256_packs_epi16(words, words);
    const std::int32_t low = _mm256_extract_epi32(bytes, 0), high = _mm256_extract_epi32(bytes, 4);
    __builtin_memcpy(p, &low, 4);
    __builtin_memcpy(p + 4, &high, 4);
  }
  static std::int32_t sum_of(I x) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
  }
  static I round(F x) { return _mm256_cvtps_epi32(x); }
  static F to_float(I x) { return _mm256_cvtepi32_ps(x); }
  // The low bytes of four, side by side: a's lowest.
  static I bytes(I a, I b, I c, I d) {
    const I low = _mm256_set1_epi32(0xff);
    const I ab = _mm256_or_si256(_mm256_and_si256(a, low), _mm256_slli_epi32(_mm256_and_si256(b, low), 8));
    const I cd = _mm256_or_si256(_mm256_and_si256(c, low), _mm256_slli_epi32(d, 8));
    return _mm256_or_si256(ab, _mm256_slli_epi32(cd, 16));
  }
  static F pow2(I n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  }
  static F nearest(F x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F scaled(F x, F n) {
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23)));
  }
  static I correct(I acc, I colsum, I pair) {
    return _mm256_add_epi32(acc, _mm256_madd_epi16(colsum, pair));
  }
  // 4 sums of 16 lanes each, by halves: lane l and l + 8, then 4, 2, 1.
  static constexpr int kSums = 4;
  static void sums(const F (&x)[kSums][2], float* to) {
    F eight[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) eight[i] = add(x[i][0], x[i][1]);
    const F a = quarters(eight[0], eight[2]), b = quarters(eight[1], eight[3]);
    const __m256d c = _mm256_castps_pd(a), d = _mm256_castps_pd(b);
    const F two = add(_mm256_castpd_ps(_mm256_unpacklo_pd(c, d)), _mm256_castpd_ps(_mm256_unpackhi_pd(c, d)));
    const F one = _mm256_hadd_ps(two, two);
    _mm_storeu_ps(to, _mm_movelh_ps(_mm256_castps256_ps128(one), _mm256_extractf128_ps(one, 1)));
  }
  static std::int32_t highest(I x) {
    __m128i v = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    v = _mm_max_epi32(v, _mm_unpackhi_epi64(v, v));
    return _mm_cvtsi128_si32(_mm_max_epi32(v, _mm_shuffle_epi32(v, 1)));
  }
  static std::uint32_t highest_unsigned(I x) {
    __m128i v = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    v = _mm_max_epu32(v, _mm_unpackhi_epi64(v, v));
    return static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm_max_epu32(v, _mm_shuffle_epi32(v, 1))));
  }

  using Half = std::uint16_t;
  static F load_f16(const Half* p) { return widen_f16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  static F load_bf16(const Half* p) { return widen_bf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  static void store_f16(Half* p, F x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow_f16(x)); }
  static void store_bf16(Half* p, F x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow_bf16(x)); }
  static F load_f16_n(const Half* p, int n) { return widen_f16(bytes(p, 2 * n)); }
  static F load_bf16_n(const Half* p, int n) { return widen_bf16(bytes(p, 2 * n)); }
  static void store_f16_n(Half* p, F x, int n) { store_bytes(p, narrow_f16(x), 2 * n); }
  static void store_bf16_n(Half* p, F x, int n) { store_bytes(p, narrow_bf16(x), 2 * n); }

  static F pair(F low, F high) {
    const I below = _mm256_srli_epi32(nearest_bf16(low), 16);
    return _mm256_castsi256_ps(_mm256_blend_epi16(below, nearest_bf16(high), 0xaa));
  }
  static F dot_pairs(F sum, F x, F y) {
    const I high = _mm256_set1_epi32(-0x10000);
    const I a = _mm256_castps_si256(x), b = _mm256_castps_si256(y);
    sum = fma(_mm256_castsi256_ps(_mm256_and_si256(a, high)), _mm256_castsi256_ps(_mm256_and_si256(b, high)), sum);
    return fma(_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(b, 16)), sum);
  }
  using Flushing = FlushSubnormals;

  static I load_q(const std::int8_t* p) { return _mm256_cvtepi8_epi32(eight(p)); }
  static I load_q(const std::uint8_t* p) { return _mm256_cvtepu8_epi32(eight(p)); }
  static I load_q_n(const std::int8_t* p, int n) { return _mm256_cvtepi8_epi32(bytes(p, n)); }
  static I load_q_n(const std::uint8_t* p, int n) { return _mm256_cvtepu8_epi32(bytes(p, n)); }

 private:
  static F quarters(F a, F b) { return add(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31)); }
  static F widen_f16(__m128i h) { return _mm256_cvtph_ps(h); }
  static F widen_bf16(__m128i h) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16)); }
  static __m128i narrow_f16(F x) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  // Rounded, in the upper halves.
  static I nearest_bf16(F x) {
    const I bits = _mm256_castps_si256(x), odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const I rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const I quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const I nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, quiet, nan);
  }
  static __m128i narrow_bf16(F x) {
    const I h = _mm256_srli_epi32(nearest_bf16(x), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
  }
  static __m128i eight(const void* p) { return _mm_loadl_epi64(static_cast<const __m128i*>(p)); }
  static __m128i bytes(const void* p, int n) {
    __m128i x = _mm_setzero_si128();
    __builtin_memcpy(&x, p, static_cast<std::size_t>(n));
    return x;
  }
  static void store_bytes(void* p, __m128i x, int n) { __builtin_memcpy(p, &x, static_cast<std::size_t>(n)); }
};

}  // namespace
}  // namespace octavo
