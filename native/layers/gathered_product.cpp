#include "layers/gathered_product.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "contract/tables.h"
#include "layers/work.h"
#include "runtime/arena.h"
#include "runtime/parallel.h"

namespace octavo {
namespace {

struct GatheredProductScratch;

constexpr std::size_t kRowsAtOnce = 64;
constexpr std::size_t kRowsTurned = 8;  // rows of indices that are read down: more would push each other out of the cache

// One matrix after the other: its rows of the table in blocks of 16 as columns, then rows of a.
struct GatheredProduct {
  const KernelTable& t;
  const View &a, &table, &index, &out;
  Loops over;  // of the axes before the last two, and two of 1 behind
  Span span;
  bool transposed;
  std::size_t m, n, k, blocks;
  std::uint8_t* base;
  std::size_t packed, rows, products, per_thread;

  float* memory(int thread, std::size_t offset) const {
    return reinterpret_cast<float*>(base + static_cast<std::size_t>(thread) * per_thread + offset);
  }

  // Columns 16 block.. of the span.
  void pack(const float* from, std::size_t block, float* to) const {
    const std::size_t row = table.strides[table.axes - 2], column = table.strides[table.axes - 1];
    const std::size_t first = block * kBlockN, columns = std::min(kBlockN, span.end - span.begin - first);
    from += first * row;
    if (column == 1 && columns == kBlockN && k % 16 == 0) return t.transpose({from, kBlockN, k, row, to, kBlockN});
    for (std::size_t i = 0; i < k; ++i)
      for (std::size_t c = 0; c < kBlockN; ++c) to[i * kBlockN + c] = c < columns ? from[c * row + i * column] : 0.0f;
  }

  // Rows of a side by side.
  const float* side_by_side(const float* x, std::size_t count, float* to, std::size_t& stride) const {
    const std::size_t row = a.strides[a.axes - 2], column = a.strides[a.axes - 1];
    stride = row;
    if (column == 1 || k == 1) return x;
    for (std::size_t r = 0; r < count; ++r)
      for (std::size_t i = 0; i < k; ++i) to[r * k + i] = x[r * row + i * column];
    stride = k;
    return to;
  }

  std::size_t place(std::int64_t found) const {
    const std::size_t size = table.sizes[table.axes - 2];
    return (found < 0 ? static_cast<std::size_t>(found + static_cast<std::int64_t>(size)) : static_cast<std::size_t>(found)) - span.begin;
  }

  // Rows first.. of products to where they belong.
  void place_rows(const float* y, const std::int64_t* indices, std::size_t first, std::size_t count, float* to) const {
    const std::size_t row = index.strides[index.axes - 2], column = index.strides[index.axes - 1], width = blocks * kBlockN;
    if (!transposed) {
      for (std::size_t r = 0; r < count; ++r)
        for (std::size_t c = 0; c < n; ++c) to[(first + r) * n + c] = y[r * width + place(indices[(first + r) * row + c * column])];
      return;
    }
    for (std::size_t some = 0; some < count; some += kRowsTurned) {
      const std::size_t last = std::min(count, some + kRowsTurned);
      for (std::size_t c = 0; c < n; ++c)
        for (std::size_t r = some; r < last; ++r) to[c * m + first + r] = y[r * width + place(indices[(first + r) * row + c * column])];
    }
  }

  void operator()(int, int thread, int threads) const {
    const FloatMode mode;
    const std::size_t count = over.rows() * over.inner();
    const Share mine = share(count, 1, thread, threads);
    float *weight = memory(thread, packed), *beside = memory(thread, rows), *y = memory(thread, products);
    const float* last_packed = nullptr;
    for (std::size_t i = mine.begin; i < mine.end; ++i) {
      const float* from = table.as<float>() + over.at(1, i) + span.begin * table.strides[table.axes - 2];
      for (std::size_t b = 0; b < blocks && from != last_packed; ++b) pack(from, b, weight + b * k * kBlockN);
      last_packed = from;
      for (std::size_t first = 0; first < m; first += kRowsAtOnce) {
        const std::size_t some = std::min(kRowsAtOnce, m - first);
        std::size_t stride;
        const float* x = side_by_side(a.as<float>() + over.at(0, i) + first * a.strides[a.axes - 2], some, beside, stride);
        t.float_gemm({x, some, stride, k, weight, 0, blocks, nullptr, 0, y, blocks * kBlockN});
        place_rows(y, index.as<std::int64_t>() + over.at(2, i), first, some, out.as<float>() + i * m * n);
      }
    }
  }
};

}  // namespace

Span span_of(const View& indices, std::size_t size) {
  const auto count = static_cast<std::int64_t>(size);
  View once = indices;  // what repeats is read once
  for (std::size_t i = 0; i < once.axes; ++i)
    if (once.strides[i] == 0) once.sizes[i] = std::min<std::size_t>(once.sizes[i], 1);
  if (once.count() == 0) return {};
  const Loops over(once.sizes, once.axes, {&once});
  std::int64_t least = count, most = -1;
  for (std::size_t row = 0; row < over.rows(); ++row) {
    const std::int64_t* found = once.as<std::int64_t>() + over.at(0, row);
    for (std::size_t i = 0; i < over.inner(); ++i) {
      std::int64_t place = found[i * over.step(0)];
      if (place < -count || place >= count)
        throw std::invalid_argument("index " + std::to_string(place) + " is outside of " + std::to_string(size) + " elements");
      place += place < 0 ? count : 0;
      least = std::min(least, place);
      most = std::max(most, place);
    }
  }
  return {static_cast<std::size_t>(least), static_cast<std::size_t>(most) + 1};
}

void gathered_product(const View& a, const View& table, const View& index, const Span& span, bool transposed, const View& out, int threads) {
  if (out.count() == 0) return;
  const std::size_t m = index.sizes[index.axes - 2], n = index.sizes[index.axes - 1], k = a.last();
  if (k == 0) {
    std::memset(out.data, 0, out.bytes());
    return;
  }
  View lead[4] = {out, a, table, index};
  for (View& v : lead) v.axes -= 2;
  Loops over(lead[0].sizes, lead[0].axes, {&lead[1], &lead[2], &lead[3]});
  // Every matrix by itself: the last axis of `over` is one that is passed, too.
  over.sizes[over.axes] = 1;
  for (std::size_t v = 0; v < 3; ++v) over.strides[v][over.axes] = 0;
  ++over.axes;
  const std::size_t blocks = (span.end - span.begin + kBlockN - 1) / kBlockN, count = over.rows();
  const double macs = static_cast<double>(count * m) * static_cast<double>(blocks * kBlockN * k);
  threads = static_cast<int>(std::min(static_cast<std::size_t>(earned_threads(threads, macs / rate::kFloatMacs)), count));
  Layout layout;
  const std::size_t packed = layout.add<float>(blocks * kBlockN * k), rows = layout.add<float>(kRowsAtOnce * k),
                    products = layout.add<float>(kRowsAtOnce * blocks * kBlockN);
  std::uint8_t* base = scratch<GatheredProductScratch>(layout.bytes() * static_cast<std::size_t>(threads));
  GatheredProduct job{octavo::table(), a, table, index, out, over, span, transposed, m, n, k, blocks, base, packed, rows, products, layout.bytes()};
  parallel(threads, 1, job);
}

}  // namespace octavo
