// Rows of activations for weights in groups: panels of int8, over any vector type of vector_*.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"
#include "isa/constant_indices.h"
#include "isa/quantize_rows.h"
#include "isa/row_range.h"

namespace octavo {
namespace {

template <class V>
struct GroupRows {
  static void quantize(const QuantizeGroups& q) {
    const std::size_t stride = group_panel_stride(q.group, q.k), groups = groups_of(q.k, q.group);
    for (std::size_t m = 0; m < q.rows; ++m) {
      const float* x = q.x + m * q.stride;
      std::int8_t* to = q.panel + m * stride;
      RowQuant* quant = q.quant + m * groups;
      if (q.each) each_group(q, x, to, quant);
      else whole_row(q, x, to, quant);
      for (std::size_t i = q.k; i < stride; ++i) to[i] = 0;
    }
  }

 private:
  // Symmetric, a scale for each group: max |x| / 127.
  static OCTAVO_INLINE void each_group(const QuantizeGroups& q, const float* x, std::int8_t* to, RowQuant* quant) {
    for_each_group(q.k, q.group, [&](std::size_t g, std::size_t first, std::size_t n) {
      const ValueRange seen = RowRange<V>::seen(x + first, n);
      if (!seen.finite) {
        __builtin_memset(to + first, 0, n);
        quant[g] = {__builtin_nanf(""), 0, 0, 0};
        return;
      }
      float scale = (-seen.lo > seen.hi ? -seen.lo : seen.hi) / 127.0f;
      if (scale < 1e-30f) scale = 1.0f;
      const auto inverse = V::set(1.0f / scale);
      quant[g] = with_sum(scale, 0, integers(x + first, n, to + first, [&](typename V::F v) { return V::round(V::mul(v, inverse)); }));
    });
  }
  // As all rows are quantized, less 128.
  static OCTAVO_INLINE void whole_row(const QuantizeGroups& q, const float* x, std::int8_t* to, RowQuant* quant) {
    const RowScale r = RowRange<V>::scale(x, q.k);
    const auto inverse = V::set(r.inverse), zero = V::set(static_cast<float>(r.zero_point));
    const auto middle = V::set_i(128);
    for_each_group(q.k, q.group, [&](std::size_t g, std::size_t first, std::size_t n) {
      const auto less = [&](typename V::F v) { return V::sub_i(V::round(level<V>(v, inverse, zero)), middle); };
      quant[g] = with_sum(r.scale, r.zero_point - 128, integers(x + first, n, to + first, less));
    });
  }
  static RowQuant with_sum(float scale, std::int32_t zero, std::int32_t sum) { return {scale, int16_pair(-sum, 0), -sum, zero}; }

  // n integers; their sum.
  template <class Rounded>
  static OCTAVO_INLINE std::int32_t integers(const float* x, std::size_t n, std::int8_t* to, const Rounded& rounded) {
    constexpr std::size_t w = V::kWidth;
    auto sums = V::set_i(0);
    std::size_t i = 0;
    for (; i + w <= n; i += w) {
      const auto v = rounded(V::load(x + i));
      V::store_bytes(to + i, v);
      sums = V::add_i(sums, v);
    }
    std::int32_t sum = V::sum_of(sums);
    if (i < n) {
      std::int32_t rest[w];
      V::store_i(rest, rounded(V::load_n(x + i, static_cast<int>(n - i))));
      for (std::size_t j = 0; i + j < n; ++j) {
        to[i + j] = static_cast<std::int8_t>(rest[j]);
        sum += rest[j];
      }
    }
    return sum;
  }
};

}  // namespace
}  // namespace octavo
