// Four elements at a time, for Advanced SIMD as every 64-bit ARM processor has it.
#pragma once

#include <arm_neon.h>

#include <climits>
#include <cstddef>
#include <cstdint>

#include "isa/flush_subnormals_neon.h"

namespace octavo {
namespace {

struct Neon {
  using F = float32x4_t;
  using I = int32x4_t;
  using Mask = uint32x4_t;
  static constexpr int kWidth = 4;

  static F load(const float* p) { return vld1q_f32(p); }
  static F load_n(const float* p, int n) { return n >= kWidth ? load(p) : vreinterpretq_f32_u32(words(p, n)); }
  static void store(float* p, F x) { vst1q_f32(p, x); }
  static void store_n(float* p, F x, int n) {
    if (n >= kWidth) store(p, x);
    else store_words(p, vreinterpretq_u32_f32(x), n);
  }
  static I load_i(const std::int32_t* p) { return vld1q_s32(p); }
  static void store_i(std::int32_t* p, I x) { vst1q_s32(p, x); }
  static void store_i_n(std::int32_t* p, I x, int n) {
    if (n >= kWidth) store_i(p, x);
    else store_words(p, vreinterpretq_u32_s32(x), n);
  }
  static F set(float x) { return vdupq_n_f32(x); }
  static I set_i(std::int32_t x) { return vdupq_n_s32(x); }

  static F add(F a, F b) { return vaddq_f32(a, b); }
  static F sub(F a, F b) { return vsubq_f32(a, b); }
  static F mul(F a, F b) { return vmulq_f32(a, b); }
  static F div(F a, F b) { return vdivq_f32(a, b); }
  static F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  // As minps: b where either is NaN, or both are zeros. fmin and fmax would keep a NaN, and know a zero's sign.
  static F min(F a, F b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
  static F max(F a, F b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
  static F sqrt(F a) { return vsqrtq_f32(a); }
  static F abs(F a) { return vabsq_f32(a); }
  static F copysign(F size, F sign) { return vbslq_f32(sign_bit(), sign, size); }
  // A NaN becomes -most: that of ARM's arithmetic has no sign, and that of x86 has.
  static F clipped(F x, F most) { return vbslq_f32(is_number(x), copysign(min(abs(x), most), x), vnegq_f32(most)); }
  static Mask is_number(F a) { return vceqq_f32(a, a); }
  static Mask less(F a, F b) { return vcltq_f32(a, b); }
  static F select(Mask m, F yes, F no) { return vbslq_f32(m, yes, no); }
  // By the lowest bits, one a lane.
  static F pick(std::uint32_t bits, F yes, F no) {
    const Mask each = {1, 2, 4, 8};
    return vbslq_f32(vtstq_u32(vdupq_n_u32(bits), each), yes, no);
  }

  static I add_i(I a, I b) { return vaddq_s32(a, b); }
  static I sub_i(I a, I b) { return vsubq_s32(a, b); }
  static I mul_i(I a, I b) { return vmulq_s32(a, b); }
  static I max_i(I a, I b) { return vmaxq_s32(a, b); }
  static I max_unsigned(I a, I b) { return vreinterpretq_s32_u32(vmaxq_u32(vreinterpretq_u32_s32(a), vreinterpretq_u32_s32(b))); }
  static I bits(F x) { return vreinterpretq_s32_f32(x); }
  static I once(I x) { return x; }
  // -128..127 as bytes.
  static void store_bytes(std::int8_t* p, I x) {
    const int16x4_t halves = vmovn_s32(x);
    const int8x8_t bytes = vmovn_s16(vcombine_s16(halves, halves));
    __builtin_memcpy(p, &bytes, 4);
  }
  static std::int32_t sum_of(I x) { return vaddvq_s32(x); }
  // What is not an int32 gives the smallest one, as cvtps2dq does; fcvtns gives the nearest, and 0 for a NaN.
  static I round(F x) {
    const Mask fits = vcltq_f32(x, vdupq_n_f32(2147483648.0f));
    return vbslq_s32(fits, vcvtnq_s32_f32(x), vdupq_n_s32(INT32_MIN));
  }
  static F to_float(I x) { return vcvtq_f32_s32(x); }
  // The low bytes of four, side by side: a's lowest.
  static I bytes(I a, I b, I c, I d) { return vsliq_n_s32(vsliq_n_s32(vsliq_n_s32(a, b, 8), c, 16), d, 24); }
  static F pow2(I n) { return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23)); }
  static F nearest(F x) { return vrndnq_f32(x); }
  static F scaled(F x, F n) { return vreinterpretq_f32_s32(vaddq_s32(bits(x), vshlq_n_s32(vcvtnq_s32_f32(n), 23))); }
  // The halves of colsum are the same for all rows, for which the compiler takes them apart once.
  static I correct(I acc, I colsum, I pair) {
    const int16x4_t both = vget_low_s16(vreinterpretq_s16_s32(pair));
    acc = vmlal_lane_s16(acc, vmovn_s32(colsum), both, 0);
    return vmlal_lane_s16(acc, vshrn_n_s32(colsum, 16), both, 1);
  }
  // 4 sums of 16 lanes each, by halves: lane l and l + 8, then 4, 2, 1.
  static constexpr int kSums = 4;
  static void sums(const F (&x)[kSums][4], float* to) {
    F four[kSums];
#pragma GCC unroll 4
    for (int i = 0; i < kSums; ++i) four[i] = add(add(x[i][0], x[i][2]), add(x[i][1], x[i][3]));
    store(to, vpaddq_f32(halves(four[0], four[1]), halves(four[2], four[3])));
  }
  static std::int32_t highest(I x) { return vmaxvq_s32(x); }
  static std::uint32_t highest_unsigned(I x) { return vmaxvq_u32(vreinterpretq_u32_s32(x)); }

  using Half = std::uint16_t;
  static F load_f16(const Half* p) { return widen_f16(vld1_u16(p)); }
  static F load_bf16(const Half* p) { return widen_bf16(vld1_u16(p)); }
  static void store_f16(Half* p, F x) { vst1_u16(p, narrow_f16(x)); }
  static void store_bf16(Half* p, F x) { vst1_u16(p, narrow_bf16(x)); }
  static F load_f16_n(const Half* p, int n) { return widen_f16(some(p, n)); }
  static F load_bf16_n(const Half* p, int n) { return widen_bf16(some(p, n)); }
  static void store_f16_n(Half* p, F x, int n) { store_some(p, narrow_f16(x), n); }
  static void store_bf16_n(Half* p, F x, int n) { store_some(p, narrow_bf16(x), n); }

  static F pair(F low, F high) { return vreinterpretq_f32_u32(vsriq_n_u32(nearest_bf16(high), nearest_bf16(low), 16)); }
  static F dot_pairs(F sum, F x, F y) {
    const uint32x4_t high = vdupq_n_u32(0xffff0000u), a = vreinterpretq_u32_f32(x), b = vreinterpretq_u32_f32(y);
    sum = fma(vreinterpretq_f32_u32(vandq_u32(a, high)), vreinterpretq_f32_u32(vandq_u32(b, high)), sum);
    return fma(vreinterpretq_f32_u32(vshlq_n_u32(a, 16)), vreinterpretq_f32_u32(vshlq_n_u32(b, 16)), sum);
  }
  using Flushing = FlushSubnormals;

  static I load_q(const std::int8_t* p) { return widen(four(p)); }
  static I load_q(const std::uint8_t* p) { return widen_unsigned(four(p)); }
  static I load_q_n(const std::int8_t* p, int n) { return widen(up_to_four(p, n)); }
  static I load_q_n(const std::uint8_t* p, int n) { return widen_unsigned(up_to_four(p, n)); }

  // Four bytes as int32; the upper four lanes of `q` are anything.
  static I widen(uint8x8_t q) { return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(q)))); }
  static I widen_unsigned(uint8x8_t q) { return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(q)))); }
  static uint8x8_t four(const void* p) {
    std::uint32_t x;
    __builtin_memcpy(&x, p, 4);
    return vreinterpret_u8_u32(vdup_n_u32(x));
  }

 private:
  static Mask sign_bit() { return vdupq_n_u32(0x80000000u); }
  static F halves(F a, F b) {
    const float64x2_t x = vreinterpretq_f64_f32(a), y = vreinterpretq_f64_f32(b);
    return add(vreinterpretq_f32_f64(vtrn1q_f64(x, y)), vreinterpretq_f32_f64(vtrn2q_f64(x, y)));
  }
  // Words 0 .. n - 1, zeros behind them (n < 4). No copy of a length that varies: its call would have all vectors stored.
  static uint32x4_t words(const void* p, int n) {
    const auto* from = static_cast<const char*>(p);
    return vcombine_u32(vcreate_u32(few(from, n < 2 ? 4 * n : 8)), vcreate_u32(few(from + 8, 4 * n - 8)));
  }
  static void store_words(void* p, uint32x4_t x, int n) {
    auto* to = static_cast<char*>(p);
    store_few(to, vgetq_lane_u64(vreinterpretq_u64_u32(x), 0), n < 2 ? 4 * n : 8);
    store_few(to + 8, vgetq_lane_u64(vreinterpretq_u64_u32(x), 1), 4 * n - 8);
  }
  static uint16x4_t some(const Half* p, int n) { return vcreate_u16(few(p, n < kWidth ? 2 * n : 8)); }
  static void store_some(Half* p, uint16x4_t x, int n) {
    store_few(p, vget_lane_u64(vreinterpret_u64_u16(x), 0), n < kWidth ? 2 * n : 8);
  }
  static uint8x8_t up_to_four(const void* p, int n) { return vcreate_u8(few(p, n < kWidth ? n : kWidth)); }

  // The first n bytes, 8 at most, zeros behind them.
  static std::uint64_t few(const void* p, int n) {
    const auto* from = static_cast<const char*>(p);
    std::uint64_t all = 0;
    if (n <= 0) return all;
    if (n >= 8) {
      __builtin_memcpy(&all, from, 8);
      return all;
    }
    int at = 0;
    const auto part = [&](auto x) {
      __builtin_memcpy(&x, from + at, sizeof x);
      all |= static_cast<std::uint64_t>(x) << 8 * at;
      at += static_cast<int>(sizeof x);
    };
    if (n & 4) part(std::uint32_t{});
    if (n & 2) part(std::uint16_t{});
    if (n & 1) part(std::uint8_t{});
    return all;
  }
  static void store_few(void* p, std::uint64_t all, int n) {
    auto* to = static_cast<char*>(p);
    if (n >= 8) __builtin_memcpy(to, &all, 8);
    if (n <= 0 || n >= 8) return;
    const auto part = [&](auto x) {
      __builtin_memcpy(to, &x, sizeof x);
      to += sizeof x;
      all >>= 8 * sizeof x;
    };
    if (n & 4) part(static_cast<std::uint32_t>(all));
    if (n & 2) part(static_cast<std::uint16_t>(all));
    if (n & 1) part(static_cast<std::uint8_t>(all));
  }

  static F widen_f16(uint16x4_t h) { return vcvt_f32_f16(vreinterpret_f16_u16(h)); }
  static F widen_bf16(uint16x4_t h) { return vreinterpretq_f32_u32(vshll_n_u16(h, 16)); }
  static uint16x4_t narrow_f16(F x) { return vreinterpret_u16_f16(vcvt_f16_f32(x)); }
  // Rounded, in the upper halves.
  static uint32x4_t nearest_bf16(F x) {
    const uint32x4_t bits = vreinterpretq_u32_f32(x), odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    return vbslq_u32(is_number(x), rounded, vorrq_u32(bits, vdupq_n_u32(0x400000)));
  }
  static uint16x4_t narrow_bf16(F x) { return vshrn_n_u32(nearest_bf16(x), 16); }
};

}  // namespace
}  // namespace octavo
