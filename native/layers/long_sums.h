// Rows of more inputs than int32 sums hold: chunks in int32, their sum in int64; rare, so what follows is scalar.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"
#include "layers/pack.h"

namespace octavo {

// `g` without groups and residual, of columns column..column + columns, into a tile whose rows lie `stride` floats apart;
// `total` has room for as many int64.
inline void long_sums(const KernelTable& t, Gemm g, float* tile, std::int64_t* total, std::size_t stride, std::size_t column,
                      std::size_t columns) {
  const Weight& w = g.weight;
  auto* raw = reinterpret_cast<std::int32_t*>(tile);
  std::fill(total, total + g.rows * stride, 0);
  g.raw = raw - column;
  g.raw_stride = stride;
  for (g.chunk = 0; g.chunk < sections(w.k, 0); ++g.chunk) {
    t.gemm(g);
    for (std::size_t i = 0; i < g.rows * stride; ++i)
      if (i % stride < columns) total[i] += raw[i];
  }
  for (std::size_t r = 0; r < g.rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      std::int64_t sum = total[r * stride + c];
      if (w.zero) sum -= static_cast<std::int64_t>(w.zero[column + c]) * g.quant[r].sum;
      const float f = static_cast<float>(sum) * g.quant[r].scale;
      tile[r * stride + c] = __builtin_fmaf(f, w.scale[column + c], g.bias ? g.bias[column + c] : 0.0f);
    }
    t.activate(g.activation, tile + r * stride, columns);
  }
}

}  // namespace octavo
