#include "layers/float_matmul.h"

#include <algorithm>
#include <cstring>

#include "contract/tables.h"
#include "layers/work.h"
#include "runtime/arena.h"
#include "runtime/parallel.h"

namespace octavo {
namespace {

struct FloatMatMulScratch;

constexpr std::size_t kRowsAtOnce = 64;

// One product after the other: b's columns in blocks of 16 (once for each matrix of b), then rows of a.
struct Product {
  const KernelTable& t;
  const View &a, &b, &out;
  Loops over;  // of the axes before the last two, and two of 1 behind
  std::size_t m, k, n, blocks;
  float *packed, *rows, *wide;  // of all; of a thread: rows of a side by side, rows of whole blocks
  std::size_t product = 0;

  const float* a_at(std::size_t i) const { return a.as<float>() + over.at(1, i); }
  const float* b_at(std::size_t i) const { return b.as<float>() + over.at(2, i); }
  std::size_t stride(const View& v, std::size_t from_end) const { return v.sizes[v.axes - from_end] == 1 ? 0 : v.strides[v.axes - from_end]; }

  // Columns 16 block.. of b.
  void pack(std::size_t block) const {
    const std::size_t first = block * kBlockN, columns = std::min(kBlockN, n - first), row = stride(b, 2), column = stride(b, 1);
    const float* from = b_at(product) + first * column;
    float* to = packed + block * k * kBlockN;
    for (std::size_t i = 0; i < k; ++i) {
      for (std::size_t c = 0; c < columns; ++c) to[i * kBlockN + c] = from[i * row + c * column];
      for (std::size_t c = columns; c < kBlockN; ++c) to[i * kBlockN + c] = 0.0f;
    }
  }

  void multiply(std::size_t first, std::size_t count, int thread) const {
    const std::size_t row = stride(a, 2), column = stride(a, 1);
    const float* x = a_at(product) + first * row;
    std::size_t x_stride = row;
    if (column != 1 && k > 1) {
      float* side_by_side = rows + static_cast<std::size_t>(thread) * kRowsAtOnce * k;
      for (std::size_t r = 0; r < count; ++r)
        for (std::size_t i = 0; i < k; ++i) side_by_side[r * k + i] = x[r * row + i * column];
      x = side_by_side;
      x_stride = k;
    }
    float* to = out.as<float>() + (product * m + first) * n;
    // Blocks are written whole.
    const std::size_t whole = n / kBlockN;
    t.float_gemm({x, count, x_stride, k, packed, 0, whole, nullptr, 0, to, n});
    if (whole == blocks) return;
    float* last = wide + static_cast<std::size_t>(thread) * kRowsAtOnce * kBlockN;
    t.float_gemm({x, count, x_stride, k, packed + whole * k * kBlockN, 0, 1, nullptr, 0, last, kBlockN});
    for (std::size_t r = 0; r < count; ++r)
      std::memcpy(to + r * n + whole * kBlockN, last + r * kBlockN, (n - whole * kBlockN) * sizeof(float));
  }

  void operator()(int phase, int thread, int threads) const {
    const FloatMode mode;
    if (phase == 0) {
      const Share mine = share(blocks, 1, thread, threads);
      for (std::size_t i = mine.begin; i < mine.end; ++i) pack(i);
      return;
    }
    const Share mine = share(m, 4, thread, threads);
    for (std::size_t i = mine.begin; i < mine.end; i += kRowsAtOnce) multiply(i, std::min(kRowsAtOnce, mine.end - i), thread);
  }
};

}  // namespace

void float_matmul(const View& a, const View& b, const View& out, int threads) {
  if (out.count() == 0) return;
  const std::size_t m = out.sizes[out.axes - 2], n = out.sizes[out.axes - 1], k = a.last(), blocks = (n + kBlockN - 1) / kBlockN;
  if (k == 0) {
    std::memset(out.data, 0, out.bytes());
    return;
  }
  View lead[3] = {out, a, b};
  for (View& v : lead) v.axes -= 2;
  Loops over(lead[0].sizes, lead[0].axes, {&lead[0], &lead[1], &lead[2]});
  threads = earned_threads(threads, static_cast<double>(m * n) * static_cast<double>(k) / rate::kFloatMacs, 2.0);
  const auto count = static_cast<std::size_t>(threads);
  Layout layout;
  const std::size_t packed = layout.add<float>(blocks * kBlockN * k), rows = layout.add<float>(count * kRowsAtOnce * k),
                    wide = layout.add<float>(count * kRowsAtOnce * kBlockN);
  std::uint8_t* base = scratch<FloatMatMulScratch>(layout.bytes());
  Product product{table(), a, b, out, over, m, k, n, blocks, reinterpret_cast<float*>(base + packed),
                  reinterpret_cast<float*>(base + rows), reinterpret_cast<float*>(base + wide)};
  const std::size_t products = over.rows() * over.inner();
  // Every product by itself: the last axis of `over` is one that is passed, too.
  product.over.sizes[product.over.axes] = 1;
  for (std::size_t v = 0; v < 3; ++v) product.over.strides[v][product.over.axes] = 0;
  ++product.over.axes;
  for (; product.product < products; ++product.product) parallel(threads, 2, product);
}

}  // namespace octavo
