// The parts of a convolution, over any vector type of vector_*.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"
#include "isa/activations.h"
#include "isa/quantize_rows.h"
#include "isa/shuffled.h"
#include "isa/store_channels.h"
#include "isa/transpose_words.h"

namespace octavo {
namespace {

// One cache line, moved with the widest registers there are.
typedef char Line __attribute__((vector_size(64), aligned(1), may_alias));

inline void copy_line(std::uint8_t* to, const std::uint8_t* from) {
  *reinterpret_cast<Line*>(to) = *reinterpret_cast<const Line*>(from);
}

inline void copy_windows(const Windows& w) {
  static constexpr std::uint8_t zeros[64] = {};
  const std::uint8_t* row = w.image + w.first / w.width * w.row_step;
  std::size_t column = w.first % w.width;
  std::uint8_t* to = w.to;
  for (std::size_t i = 0; i < w.count; ++i, to += w.stride) {
    const std::uint8_t* window = row + column * w.pixel_step;
    std::uint8_t* at = to;
    for (std::size_t s = 0; s < w.segments; ++s, at += w.length)
      // Whole lines: what is too much, the next run or row overwrites.
      for (std::size_t b = 0; b < w.length; b += 64) copy_line(at + b, window + w.offset[s] + b);
    if (at < to + w.stride) copy_line(at, zeros);
    if (++column == w.width) {
      column = 0;
      row += w.row_step;
    }
  }
}

typedef std::uint8_t Bytes16 __attribute__((vector_size(16)));

// Columns become rows: four turns of a riffle do it.
inline void transpose_bytes(Bytes16 (&a)[16]) {
  Bytes16 b[16];
  for (int turn = 0; turn < 4; ++turn) {
    for (int i = 0; i < 8; ++i) {
      b[2 * i] = shuffled<0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23>(a[i], a[i + 8]);
      b[2 * i + 1] = shuffled<8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31>(a[i], a[i + 8]);
    }
    __builtin_memcpy(a, b, sizeof a);
  }
}

template <class V>
struct Images {
  using F = typename V::F;
  static constexpr std::size_t kWidth = V::kWidth;

  static int valid(std::size_t n) { return static_cast<int>(n < kWidth ? n : kWidth); }

  static void quantize_pixels(const QuantizePixels& q) {
    const F inverse = V::set(q.inverse), zero = V::set(static_cast<float>(q.zero_point));
    for (std::size_t p = 0; p < q.pixels; p += 16)
      for (std::size_t next = round_up(q.channels, 16); next > 0; next -= 16) {  // the order of store_channels
        const std::size_t c = next - 16;
        const std::size_t pixels = q.pixels - p < 16 ? q.pixels - p : 16;
        const std::size_t channels = q.channels - c < 16 ? q.channels - c : 16;
        Bytes16 block[16] = {};
        for (std::size_t i = 0; i < channels; ++i) {
          const float* x = q.x + (c + i) * q.channel_stride + p;
          float levels[16] = {};
          for (std::size_t j = 0; j < pixels; j += kWidth)
            V::store(levels + j, level<V>(V::load_n(x + j, valid(pixels - j)), inverse, zero));
          for (std::size_t j = 0; j < 16; ++j)
            block[i][j] = static_cast<std::uint8_t>(static_cast<std::int32_t>(levels[j]));
        }
        transpose_bytes(block);
        for (std::size_t j = 0; j < pixels; ++j)
          store_channels(q, p + j, c, reinterpret_cast<const std::uint8_t*>(&block[j]));
      }
  }

  static void transpose(const Transpose& t) {
    std::size_t r = 0;
    for (; kWidth > 1 && r + 4 <= t.rows; r += 4) {
      std::size_t c = 0;
      for (; c + 4 <= t.columns; c += 4)
        transpose_four_rows(t.from + r * t.stride + c, t.stride * sizeof(float), t.to + c * t.to_stride + r, t.to_stride * sizeof(float));
      for (; c < t.columns; ++c)
        for (std::size_t i = r; i < r + 4; ++i) t.to[c * t.to_stride + i] = t.from[i * t.stride + c];
    }
    for (; r < t.rows; ++r)
      for (std::size_t c = 0; c < t.columns; ++c) t.to[c * t.to_stride + r] = t.from[r * t.stride + c];
  }

  static void max_pool(const MaxPool& p) {
    for (std::size_t i = 0; i < p.count; ++i)
      for (std::size_t c = 0; c < p.columns; c += kWidth) {
        const float* from = p.from + i * p.across * p.stride + c;
        F largest = V::load(from);
        for (std::size_t d = 0; d < p.down; ++d)
          for (std::size_t a = 0; a < p.across; ++a)
            largest = V::max(largest, V::load(from + (d * p.row_step + a) * p.stride));
        V::store(p.to + i * p.stride + c, largest);
      }
  }

  static void quantize_levels(const QuantizeLevels& q) {
    const F inverse = V::set(q.inverse), zero = V::set(static_cast<float>(q.zero_point));
    const auto from = [&](F x) { return V::sub(level<V>(x, inverse, zero), zero); };
    for (std::size_t r = 0; r < q.rows; ++r) {
      const float* x = q.x + r * q.columns;
      float* to = q.to + r * q.row;
      std::size_t i = 0;
      if (q.step == 1)
        for (to += q.first; i + kWidth <= q.columns; i += kWidth) V::store(to + i, from(V::load(x + i)));
      for (; i < q.columns; i += kWidth) {
        const int n = valid(q.columns - i);
        if (q.step == 1) V::store_n(to + i, from(V::load_n(x + i, n)), n);
        else scatter(q, to, q.first + i, from(V::load_n(x + i, n)), n);
      }
    }
  }

  static void scatter(const QuantizeLevels& q, float* to, std::size_t at, F y, int n) {
    float levels[kWidth];
    V::store(levels, y);
    std::size_t phase = at % q.step, index = at / q.step;
    for (int j = 0; j < n; ++j) {
      to[phase * q.run + index] = levels[j];
      if (++phase == q.step) {
        phase = 0;
        ++index;
      }
    }
  }

  static void store_row(const Depthwise& d, std::size_t row, std::size_t column, F sum) {
    const F f = V::mul(sum, V::set(d.scale));
    F y = V::fma(f, V::set(d.weight_scale), V::set(d.bias));
    if (d.activation != Activation::kNone) y = Elementwise<V>::apply(d.activation, y);
    float* to = d.out + row * d.columns + column;
    if (d.columns - column >= kWidth) V::store(to, y);
    else V::store_n(to, y, static_cast<int>(d.columns - column));
  }

  // R rows by C vectors of the output, any filter.
  template <int R, int C>
  static void depthwise_tile(const Depthwise& d, std::size_t row, std::size_t column) {
    F acc[R][C];
    for (auto& sums : acc)
      for (F& x : sums) x = V::set(0.0f);
    const float* window = d.plane + row * d.row_step + column;
    for (std::size_t t = 0; t < d.taps; ++t) {
      const F w = V::set(d.weight[t]);
      const float* x = window + d.offset[t];
      for (std::size_t r = 0; r < R; ++r)
        for (std::size_t c = 0; c < C; ++c)
          acc[r][c] = V::fma(V::load(x + r * d.row_step + c * kWidth), w, acc[r][c]);
    }
    for (std::size_t r = 0; r < R; ++r)
      for (std::size_t c = 0; c < C && column + c * kWidth < d.columns; ++c)
        store_row(d, row + r, column + c * kWidth, acc[r][c]);
  }

  // One column of tiles, C vectors wide: R rows at a time, then one by one.
  template <int R, int C>
  static void depthwise_any(const Depthwise& d, std::size_t column) {
    std::size_t row = 0;
    for (; row + R <= d.rows; row += R) depthwise_tile<R, C>(d, row, column);
    for (; row < d.rows; ++row) depthwise_tile<1, C>(d, row, column);
  }

  // Filters of three rows by three, each a row of output apart.
  static bool three_by_three(const Depthwise& d) {
    bool rows = d.taps == 9;
    for (std::size_t t = 3; rows && t < 9; ++t) rows = d.offset[t] == d.offset[t - 3] + d.row_step;
    return rows;
  }

  // One vector of every row of the output: each input is loaded once for the three rows that it is in.
  static void depthwise_three(const Depthwise& d, std::size_t column) {
    F w[9];
    for (int i = 0; i < 9; ++i) w[i] = V::set(d.weight[i]);
    const float* x = d.plane + column;
    F next = V::set(0.0f), later = next;
    for (std::size_t row = 0; row < d.rows + 2; ++row, x += d.row_step) {
      const F x0 = V::load(x + d.offset[0]), x1 = V::load(x + d.offset[1]), x2 = V::load(x + d.offset[2]);
      const F done = V::fma(x2, w[8], V::fma(x1, w[7], V::fma(x0, w[6], next)));
      next = V::fma(x2, w[5], V::fma(x1, w[4], V::fma(x0, w[3], later)));
      later = V::fma(x2, w[2], V::fma(x1, w[1], V::fma(x0, w[0], V::set(0.0f))));
      if (row >= 2) store_row(d, row - 2, column, done);
    }
  }

  static void depthwise(const Depthwise& d) {
    const bool three = three_by_three(d);
    for (std::size_t column = 0; column < d.columns;) {
      const std::size_t left = d.columns - column, width = !three && left > kWidth ? 2 * kWidth : kWidth;
      if (three) depthwise_three(d, column);
      else if (width > kWidth) depthwise_any<4, 2>(d, column);
      else depthwise_any<8, 1>(d, column);
      column += width;
    }
  }
};

}  // namespace
}  // namespace octavo
