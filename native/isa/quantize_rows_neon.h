// Row quantization for ARM, whose panels hold a = q - 128 as int8, for sdot multiplies what has a sign by what has one.
// RowQuant::pair is of z - 128. Padding is a = 0.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"
#include "isa/quantize_rows.h"
#include "isa/vector_neon.h"

namespace octavo {
namespace {

// Writes inputs, 16 at a time, and adds them up.
struct ShiftedWriter {
  std::uint8_t* to;
  int32x4_t sums = vdupq_n_s32(0);
  std::size_t written = 0;

  void put(int8x16_t a) {
    vst1q_s8(reinterpret_cast<std::int8_t*>(to), a);
    sums = vpadalq_s16(sums, vpaddlq_s8(a));
    to += 16;
    written += 16;
  }
  // Zeros up to a multiple of kPanelK.
  void pad() const { __builtin_memset(to, 0, round_up(written, kPanelK) - written); }
  // Of n inputs with zero point z.
  RowQuant quant(float scale, std::size_t n, std::int32_t z, std::size_t group) const {
    const std::int32_t sum = vaddvq_s32(sums) + static_cast<std::int32_t>(n) * (128 - z);
    return row_quant(scale, z - 128, sum, group);
  }
};

// Of four floats of a finite row, before the zero point.
inline int32x4_t steps_of_four(const float* x, int n, float32x4_t inverse) {
  return vcvtnq_s32_f32(vmulq_f32(Neon::load_n(x, n), inverse));
}

// 16 of 16 floats: narrowing saturates, which bounds them to -128..127. From `n` on they are 0.
inline int8x16_t to_shifted(const float* x, int n, float32x4_t inverse, int16x8_t zero) {
  const int16x8_t low = vqmovn_high_s32(vqmovn_s32(steps_of_four(x, n, inverse)), steps_of_four(x + 4, n - 4, inverse));
  const int16x8_t high = vqmovn_high_s32(vqmovn_s32(steps_of_four(x + 8, n - 8, inverse)), steps_of_four(x + 12, n - 12, inverse));
  const int8x16_t a = vqmovn_high_s16(vqmovn_s16(vqaddq_s16(low, zero)), vqaddq_s16(high, zero));
  if (n >= 16) return a;
  const int8x16_t each = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return vandq_s8(a, vreinterpretq_s8_u8(vcltq_s8(each, vdupq_n_s8(static_cast<std::int8_t>(n)))));
}

struct ShiftedRows {
  static void quantize(const QuantizeRows& q) {
    const std::size_t groups = groups_of(q.k, q.group), stride = round_up(q.k, kPanelK);
    for (std::size_t m = 0; m < q.rows; ++m)
      for_each_group(q.k, q.group, [&](std::size_t g, std::size_t first, std::size_t n) {
        q.quant[m * groups + g] = section(q.x + m * q.stride + first, n, q.group, q.panel + m * stride + first);
      });
  }

  static void panel(const PanelRows& p) {
    const std::size_t groups = groups_of(p.k, p.group), stride = round_up(p.k, kPanelK);
    for (std::size_t m = 0; m < p.rows; ++m)
      for_each_group(p.k, p.group, [&](std::size_t g, std::size_t first, std::size_t n) {
        const std::size_t at = m * groups + g;
        p.quant[at] = shifted(p.q + m * p.stride + first, n, p.panel + m * stride + first).quant(p.scale[at], n, p.zero_point[at], p.group);
      });
  }

 private:
  // n inputs of one scale.
  static RowQuant section(const float* x, std::size_t n, std::size_t group, std::uint8_t* to) {
    const RowScale r = RowRange<Neon>::scale(x, n);
    if (!r.finite()) {
      __builtin_memset(to, 0, round_up(n, kPanelK));
      return {r.scale, 0, 0, 0};
    }
    const float32x4_t inverse = vdupq_n_f32(r.inverse);
    const int16x8_t zero = vdupq_n_s16(static_cast<std::int16_t>(r.zero_point - 128));
    ShiftedWriter writer{to};
    std::size_t i = 0;
    for (; i + 16 <= n; i += 16) writer.put(to_shifted(x + i, 16, inverse, zero));
    if (i < n) writer.put(to_shifted(x + i, static_cast<int>(n - i), inverse, zero));
    writer.pad();
    return writer.quant(r.scale, n, r.zero_point, group);
  }

  static ShiftedWriter shifted(const std::uint8_t* q, std::size_t n, std::uint8_t* to) {
    ShiftedWriter writer{to};
    const uint8x16_t middle = vdupq_n_u8(128);
    for (std::size_t i = 0; i < n; i += 16) {
      uint8x16_t part = middle;
      if (n - i >= 16) part = vld1q_u8(q + i);
      else __builtin_memcpy(&part, q + i, n - i);
      writer.put(vreinterpretq_s8_u8(veorq_u8(part, middle)));
    }
    writer.pad();
    return writer;
  }
};

}  // namespace
}  // namespace octavo
