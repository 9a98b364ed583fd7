// Rows of activations to panels of plain uint8, over any vector type of vector_*.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"
#include "contract/row_scale.h"
#include "isa/row_range.h"

namespace octavo {
namespace {

// Calls work(which, first, inputs) for every group of a row, or once for all of it.
template <class Work>
void for_each_group(std::size_t k, std::size_t group, const Work& work) {
  const std::size_t groups = groups_of(k, group);
  for (std::size_t g = 0; g < groups; ++g) {
    const std::size_t first = g * group;
    work(g, first, group && k - first > group ? group : k - first);
  }
}

// clamp(round(x * inverse) + zero, 0, 255), as a float. What is no number becomes 0.
template <class V>
inline typename V::F level(typename V::F x, typename V::F inverse, typename V::F zero) {
  const typename V::F q = V::add(V::to_float(V::round(V::mul(x, inverse))), zero);
  return V::max(V::set(0.0f), V::min(V::set(255.0f), q));
}

template <class V>
struct PlainRows {
  // n inputs of one scale.
  static RowQuant section(const float* x, std::size_t n, std::size_t group, std::uint8_t* to) {
    constexpr std::size_t w = V::kWidth;
    const RowScale r = RowRange<V>::scale(x, n);
    const auto inverse = V::set(r.inverse), zero = V::set(static_cast<float>(r.zero_point));
    std::int32_t sum = 0;
    for (std::size_t i = 0; i < n; i += w) {
      const std::size_t count = n - i < w ? n - i : w;
      std::int32_t levels[w];
      V::store_i(levels, V::round(level<V>(V::load_n(x + i, static_cast<int>(count)), inverse, zero)));
      for (std::size_t j = 0; j < count; ++j) {
        to[i + j] = static_cast<std::uint8_t>(levels[j]);
        sum += levels[j] - r.zero_point;
      }
    }
    return row_quant(r.scale, r.zero_point, sum, group);
  }

  static void quantize(const QuantizeRows& q) {
    const std::size_t groups = groups_of(q.k, q.group), stride = round_up(q.k, kPanelK);
    for (std::size_t m = 0; m < q.rows; ++m) {
      std::uint8_t* to = q.panel + m * stride;
      for_each_group(q.k, q.group, [&](std::size_t g, std::size_t first, std::size_t n) {
        q.quant[m * groups + g] = section(q.x + m * q.stride + first, n, q.group, to + first);
      });
      for (std::size_t i = q.k; i < stride; ++i) to[i] = 0;
    }
  }

  static void panel(const PanelRows& p) {
    const std::size_t groups = groups_of(p.k, p.group), stride = round_up(p.k, kPanelK);
    for (std::size_t m = 0; m < p.rows; ++m) {
      std::uint8_t* to = p.panel + m * stride;
      for (std::size_t i = 0; i < stride; ++i) to[i] = i < p.k ? p.q[m * p.stride + i] : 0;
      for_each_group(p.k, p.group, [&](std::size_t g, std::size_t first, std::size_t n) {
        const std::int32_t z = p.zero_point[m * groups + g];
        std::int32_t sum = 0;
        for (std::size_t i = 0; i < n; ++i) sum += to[first + i] - z;
        p.quant[m * groups + g] = row_quant(p.scale[m * groups + g], z, sum, p.group);
      });
    }
  }
};

}  // namespace
}  // namespace octavo
