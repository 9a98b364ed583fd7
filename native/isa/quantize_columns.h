// Columns of activations as blocks of a packed weight, over any vector type of vector_*.h: a word of a block
// is four inputs of one column, so that vectors of columns are stored as they come.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"

namespace octavo {
namespace {

template <class V>
struct Columns {
  using F = typename V::F;
  using I = typename V::I;
  static constexpr std::size_t kWidth = V::kWidth, kParts = kBlockN / kWidth;

  // Columns of one part that are there.
  static int valid(std::size_t columns, std::size_t part) {
    const std::size_t first = part * kWidth;
    return static_cast<int>(columns <= first ? 0 : columns - first < kWidth ? columns - first : kWidth);
  }

  static void sizes(const ColumnSizes& s) {
    for (std::size_t p = 0; p < kParts; ++p) {
      const int n = valid(s.columns, p);
      F most = V::set(0.0f), odd = V::set(0.0f);
      for (std::size_t k = 0; k < s.k; ++k) {
        const F x = V::load_n(s.x + k * s.stride + p * kWidth, n);
        most = V::max(V::abs(x), most);
        odd = V::fma(x, V::set(0.0f), odd);  // NaN from infinity and NaN, else 0
      }
      V::store(s.largest + p * kWidth, V::add(most, odd));
    }
  }

  static I level(F x, F inverse) {
    return V::round(V::max(V::min(V::mul(x, inverse), V::set(127.0f)), V::set(-127.0f)));
  }

  static void quantize(const QuantizeColumns& q) {
    for (std::size_t p = 0; p < kParts; ++p) {
      const int n = valid(q.columns, p);
      const float* x = q.x + p * kWidth;
      const F inverse = V::load(q.inverse + p * kWidth);
      std::int8_t* to = q.to + p * kWidth * kBlockK;
      I sum = V::load_i(q.sums + p * kWidth);
      std::size_t k = 0;
      for (; k + kBlockK <= q.k; k += kBlockK, x += kBlockK * q.stride, to += kBlockN * kBlockK) {
        const I a = level(V::load_n(x, n), inverse), b = level(V::load_n(x + q.stride, n), inverse);
        const I c = level(V::load_n(x + 2 * q.stride, n), inverse), d = level(V::load_n(x + 3 * q.stride, n), inverse);
        sum = V::add_i(sum, V::add_i(V::add_i(a, b), V::add_i(c, d)));
        store(to, V::bytes(a, b, c, d));
      }
      if (k < q.k) {
        I last[kBlockK];
        for (std::size_t i = 0; i < kBlockK; ++i) {
          last[i] = k + i < q.k ? level(V::load_n(x + i * q.stride, n), inverse) : V::set_i(0);
          sum = V::add_i(sum, last[i]);
        }
        store(to, V::bytes(last[0], last[1], last[2], last[3]));
      }
      V::store_i(q.sums + p * kWidth, sum);
    }
  }

 private:
  static void store(std::int8_t* to, I words) {
    std::int32_t held[kWidth];
    V::store_i(held, words);
    __builtin_memcpy(to, held, sizeof held);
  }
};

}  // namespace
}  // namespace octavo
