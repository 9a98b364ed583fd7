// Products of two activations, over the table in use: rows of `a` are quantized as a linear layer's input
// is, columns of `b` to int8 around 0 with scale[n] = max|b[:, n]| / 127 (1 below 1e-30),
// q = clamp(round(b / scale), -127, 127) with one division a column.
#pragma once

#include <cstddef>

namespace octavo {

struct MatMul {
  const float* a;            // matrices [m, k]
  const float* b;            // matrices [k, n]; transposed: [n, k]
  bool transposed;
  std::size_t m, k, n;
  std::size_t count;         // products
  const std::size_t* a_of;   // [count]: which matrix of a
  const std::size_t* b_of;   // [count]: which of b
  std::size_t b_count;       // matrices of b
  float* out;                // [count, m, n]
};

// A row of `a` that holds NaN or infinity gives a row of NaN, such a column of `b` a column. Throws
// std::bad_alloc before anything is written.
void matmul(const MatMul& products, int threads);

}  // namespace octavo
