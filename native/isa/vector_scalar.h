// One element at a time, with the meaning that x86's vector instructions have: the normative form of
// the operations that vector_avx2.h and vector_avx512.h spell with intrinsics.
#pragma once

#include <climits>
#include <cstdint>

namespace octavo {
namespace {

struct Scalar {
  using F = float;
  using I = std::int32_t;
  using Mask = bool;
  static constexpr int kWidth = 1;

  static F load(const float* p) { return *p; }
  static F load_n(const float* p, int n) { return n > 0 ? *p : 0.0f; }
  static void store(float* p, F x) { *p = x; }
  static void store_n(float* p, F x, int n) {
    if (n > 0) *p = x;
  }
  static I load_i(const std::int32_t* p) { return *p; }
  static void store_i(std::int32_t* p, I x) { *p = x; }
  static void store_i_n(std::int32_t* p, I x, int n) {
    if (n > 0) *p = x;
  }
  static F set(float x) { return x; }
  static I set_i(std::int32_t x) { return x; }

  static F add(F a, F b) { return a + b; }
  static F sub(F a, F b) { return a - b; }
  static F mul(F a, F b) { return a * b; }
  static F div(F a, F b) { return a / b; }
  static F fma(F a, F b, F c) { return __builtin_fmaf(a, b, c); }
  static F min(F a, F b) { return a < b ? a : b; }  // b where either is NaN, as minps
  static F max(F a, F b) { return a > b ? a : b; }
  static F sqrt(F a) { return __builtin_sqrtf(a); }
  static F abs(F a) { return __builtin_fabsf(a); }
  static F copysign(F size, F sign) { return __builtin_copysignf(size, sign); }
  // x bounded to -most..most (most > 0). A NaN becomes -most, as it does with vectors if arithmetic made it: that
  // of x86 has its sign set.
  static F clipped(F x, F most) { return x == x ? copysign(min(abs(x), most), x) : -most; }
  static Mask is_number(F a) { return a == a; }
  static Mask less(F a, F b) { return a < b; }
  static F select(Mask m, F yes, F no) { return m ? yes : no; }
  // By the lowest bits, one a lane.
  static F pick(std::uint32_t bits, F yes, F no) { return bits & 1u ? yes : no; }

  static I add_i(I a, I b) { return static_cast<I>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b)); }
  static I sub_i(I a, I b) { return static_cast<I>(static_cast<std::uint32_t>(a) - static_cast<std::uint32_t>(b)); }
  static I mul_i(I a, I b) { return static_cast<I>(static_cast<std::uint32_t>(a) * static_cast<std::uint32_t>(b)); }
  static I max_i(I a, I b) { return a > b ? a : b; }
  static I max_unsigned(I a, I b) { return static_cast<std::uint32_t>(a) > static_cast<std::uint32_t>(b) ? a : b; }
  static I bits(F x) { return static_cast<I>(to_bits(x)); }
  static I once(I x) { return x; }
  static void store_bytes(std::int8_t* p, I x) { *p = static_cast<std::int8_t>(x); }
  static std::int32_t sum_of(I x) { return x; }
  // To the nearest, halves to even; what is not an int32 gives the smallest one, as cvtps2dq does.
  static I round(F x) {
    return x >= -2147483648.0f && x < 2147483648.0f ? static_cast<I>(__builtin_rintf(x)) : INT32_MIN;
  }
  static F to_float(I x) { return static_cast<float>(x); }
  // The low bytes of four, side by side: a's lowest.
  static I bytes(I a, I b, I c, I d) {
    const auto low = [](I v) { return static_cast<std::uint32_t>(v) & 0xffu; };
    return static_cast<I>(low(a) | low(b) << 8 | low(c) << 16 | low(d) << 24);
  }
  static F pow2(I n) {  // 2^n for n in -126..127
    const std::uint32_t bits = static_cast<std::uint32_t>(n + 127) << 23;
    F x;
    __builtin_memcpy(&x, &bits, 4);
    return x;
  }
  static F nearest(F x) { return __builtin_rintf(x); }  // halves to even
  // x 2^n for whole n, where both x and the result are normal numbers or NaN.
  static F scaled(F x, F n) {
    std::uint32_t bits;
    __builtin_memcpy(&bits, &x, 4);
    bits += static_cast<std::uint32_t>(round(n)) << 23;
    __builtin_memcpy(&x, &bits, 4);
    return x;
  }
  // acc - z * colsum from the pairs of RowQuant::pair and Weight::colsum.
  static I correct(I acc, I colsum, I pair) {
    const auto low = [](I v) { return static_cast<std::int32_t>(static_cast<std::int16_t>(v & 0xffff)); };
    const auto high = [](I v) { return v >> 16; };
    return add_i(acc, low(colsum) * low(pair) + high(colsum) * high(pair));
  }
  // A sum of 16 lanes, by halves: lane l and l + 8, then 4, 2, 1.
  static constexpr int kSums = 1;
  static void sums(const F (&x)[kSums][16], float* to) {
    F lanes[16];
    for (int lane = 0; lane < 16; ++lane) lanes[lane] = x[0][lane];
    for (int half = 8; half > 0; half /= 2)
      for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    *to = lanes[0];
  }
  static std::int32_t highest(I x) { return x; }
  static std::uint32_t highest_unsigned(I x) { return static_cast<std::uint32_t>(x); }

  // 16-bit floats. Rounding to the nearest, halves to even; a NaN keeps its sign and the upper bits of
  // its payload and becomes a quiet one (but bfloat16 widens as it is).
  using Half = std::uint16_t;
  static F load_f16(const Half* p) {
    const std::uint32_t sign = static_cast<std::uint32_t>(*p & 0x8000) << 16, size = *p & 0x7fffu;
    if (size < 0x400) return copysign(static_cast<F>(size) * 0x1p-24f, from_bits(sign));
    if (size < 0x7c00) return from_bits(sign | ((size << 13) + (112u << 23)));
    return from_bits(sign | 0x7f800000u | (size << 13) | (size > 0x7c00 ? 0x400000u : 0));
  }
  static F load_bf16(const Half* p) { return from_bits(static_cast<std::uint32_t>(*p) << 16); }
  static void store_f16(Half* p, F x) {
    const std::uint32_t bits = to_bits(x), size = bits & 0x7fffffffu;
    std::uint32_t h = 0x7c00;  // from 65520 on: infinity
    if (size > 0x7f800000u) h = 0x7e00u | (size >> 13 & 0x3ffu);
    else if (size < 0x38800000u) h = static_cast<std::uint32_t>(round(abs(x) * 0x1p24f));  // subnormal
    else if (size < 0x477ff000u) h = (size + 0xfffu + (size >> 13 & 1u) - (112u << 23)) >> 13;
    *p = static_cast<Half>((bits >> 16 & 0x8000u) | h);
  }
  static void store_bf16(Half* p, F x) {
    const std::uint32_t bits = to_bits(x);
    *p = static_cast<Half>(x != x ? bits >> 16 | 0x40u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
  }
  static F load_f16_n(const Half* p, int n) { return n > 0 ? load_f16(p) : 0.0f; }
  static F load_bf16_n(const Half* p, int n) { return n > 0 ? load_bf16(p) : 0.0f; }
  static void store_f16_n(Half* p, F x, int n) {
    if (n > 0) store_f16(p, x);
  }
  static void store_bf16_n(Half* p, F x, int n) {
    if (n > 0) store_bf16(p, x);
  }

  // Two bfloat16 in four bytes, rounded as store_bf16 does; in memory and registers they are a float's bits.
  static F pair(F low, F high) {
    Half halves[2];
    store_bf16(halves, low);
    store_bf16(halves + 1, high);
    return from_bits(static_cast<std::uint32_t>(halves[1]) << 16 | halves[0]);
  }
  // sum + x.high y.high, then + x.low y.low: two fused multiply-adds that flush as below.
  static F dot_pairs(F sum, F x, F y) {
    const std::uint32_t a = to_bits(x), b = to_bits(y);
    sum = flushed_fma(from_bits(a & 0xffff0000u), from_bits(b & 0xffff0000u), sum);
    return flushed_fma(from_bits(a << 16), from_bits(b << 16), sum);
  }
  struct Flushing {  // what dot_pairs needs around it
    static constexpr bool kExact = true;
    Flushing() {}
  };

  static I load_q(const std::int8_t* p) { return *p; }
  static I load_q(const std::uint8_t* p) { return *p; }
  template <class Q>
  static I load_q_n(const Q* p, int n) { return n > 0 ? *p : 0; }

 private:
  static F without_subnormals(F x) { return to_bits(x) & 0x7f800000u ? x : copysign(0.0f, x); }
  // Subnormals going in are 0, and so is what is below 2^-126 once it is rounded to 24 bits; a and b have 8 bits.
  // docs/notes/processors.md: "Products of bfloat16 are two fused multiply-adds"
  static F flushed_fma(F a, F b, F c) {
    a = without_subnormals(a);
    b = without_subnormals(b);
    c = without_subnormals(c);
    const F y = fma(a, b, c);
    if (abs(y) > __FLT_MIN__ || y != y) return y;
    // 2^-126 may have been rounded up from less than 24 bits allow. The sum is exact in 53 where it is near that.
    const double exact = static_cast<double>(a) * static_cast<double>(b) + static_cast<double>(c);
    return abs(y) < __FLT_MIN__ || __builtin_fabs(exact) < 0x1p-126 - 0x1p-151 ? copysign(0.0f, y) : y;
  }
  static F from_bits(std::uint32_t bits) {
    F x;
    __builtin_memcpy(&x, &bits, 4);
    return x;
  }
  static std::uint32_t to_bits(F x) {
    std::uint32_t bits;
    __builtin_memcpy(&bits, &x, 4);
    return bits;
  }
};

}  // namespace
}  // namespace octavo
