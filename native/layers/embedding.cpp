#include "layers/embedding.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "contract/tables.h"
#include "layers/work.h"
#include "runtime/arena.h"
#include "runtime/parallel.h"

namespace octavo {
namespace {

// How many threads `bytes` of rows read and written earn.
int threads_for(int threads, double bytes) { return earned_threads(threads, bytes / rate::kRowBytes); }

template <class Index>
void check(const Index* indices, std::size_t count, std::size_t rows) {
  using Unsigned = std::make_unsigned_t<Index>;
  Unsigned highest = 0;  // negative ones are the highest
  for (std::size_t i = 0; i < count; ++i) highest = std::max(highest, static_cast<Unsigned>(indices[i]));
  if (count == 0 || highest < rows) return;
  for (std::size_t i = 0; i < count; ++i)
    if (static_cast<Unsigned>(indices[i]) >= rows)
      throw std::out_of_range("indices: position " + std::to_string(i) + " holds " + std::to_string(indices[i]) +
                              ", and the table has " + std::to_string(rows) + " rows");
}

void check(const Indices& indices, std::size_t rows) {
  if (indices.wide) check(static_cast<const std::int64_t*>(indices.data), indices.count, rows);
  else check(static_cast<const std::int32_t*>(indices.data), indices.count, rows);
}

struct StartScratch;

// Where each bag begins, and the end of the last.
const std::size_t* starts_of(const Bags& bags, std::size_t indices) {
  auto* starts = reinterpret_cast<std::size_t*>(scratch<StartScratch>((bags.count + 1) * sizeof(std::size_t)));
  const std::size_t given = bags.count + (bags.last ? 1 : 0);
  std::int64_t before = 0;
  for (std::size_t b = 0; b < given; ++b) {
    const std::int64_t at = !bags.offsets ? static_cast<std::int64_t>(b * bags.length)
                            : bags.wide   ? static_cast<const std::int64_t*>(bags.offsets)[b]
                                          : static_cast<const std::int32_t*>(bags.offsets)[b];
    if (b == 0 ? at != 0 : at < before || at > static_cast<std::int64_t>(indices))
      throw std::invalid_argument("offsets: have to begin with 0 and ascend to at most " + std::to_string(indices) +
                                  ", the number of indices; offset " + std::to_string(b) + " is " + std::to_string(at) +
                                  (b ? " after " + std::to_string(before) : ""));
    starts[b] = static_cast<std::size_t>(at);
    before = at;
  }
  if (!bags.last) starts[bags.count] = indices;
  return starts;
}

// Row r of the packed layout of int8.
void packed_row(const EmbeddingTable& table, std::size_t r, float* to) {
  constexpr std::size_t cell = kBlockN * kBlockK;
  const auto* q = reinterpret_cast<const std::int8_t*>(table.data) + r / kBlockN * steps_of(table.dim) * cell + r % kBlockN * kBlockK;
  const std::int32_t zero = table.zero ? table.zero[r] : 0;
  const float scale = table.scale[r];
  for (std::size_t d = 0; d < table.dim; d += kBlockK, q += cell)
    for (std::size_t j = 0; j < kBlockK && d + j < table.dim; ++j) to[d + j] = static_cast<float>(q[j] - zero) * scale;
}

// What the integers of a group of one row stand for.
struct GroupValues {
  float scale, minimum, factor;
  std::int32_t zero;

  template <bool has_minimum>
  float of(std::int32_t q) const {
    return (has_minimum ? scale * static_cast<float>(q) + minimum : scale * static_cast<float>(q - zero)) * factor;
  }
};

// `count` inputs of one output of a group: 4 bytes of each step of it, with an integer in each byte, or in each half of one.
template <int halves, bool has_minimum>
void group_row(const std::uint8_t* q, std::size_t count, const GroupValues& values, float* to) {
  constexpr std::size_t kStep = kBlockK * halves;
  const auto step = [&](float* made) {
    for (int half = 0; half < halves; ++half)
      for (std::size_t i = 0; i < kBlockK; ++i)
        made[static_cast<std::size_t>(half) * kBlockK + i] = values.of<has_minimum>(halves == 1 ? q[i] : (q[i] >> (4 * half)) & 15);
    q += kBlockN * kBlockK;
  };
  std::size_t d = 0;
  for (; d + kStep <= count; d += kStep) step(to + d);
  if (d == count) return;
  float last[kStep];
  step(last);
  std::copy(last, last + (count - d), to + d);
}

// Row r of the packed layout of groups: scale times steps, times the row's own factor.
void grouped_row(const KernelTable& t, const EmbeddingTable& table, const WeightFormat& f, std::size_t r, float* to) {
  const GroupBlock of(f, table.dim);
  const std::uint8_t* block = table.data + r / kBlockN * of.bytes;
  const std::size_t c = r % kBlockN;
  const auto make = f.bits == 4 ? (f.minimum ? group_row<2, true> : group_row<2, false>) : (f.minimum ? group_row<1, true> : group_row<1, false>);
  const auto fetch = [&](std::size_t j) {
    for (std::size_t at = 0; j < of.groups && at < of.group_bytes; at += kAlign) __builtin_prefetch(of.group(block, j) + at);
  };
  constexpr std::size_t kAhead = 8;  // groups: a row has 4 bytes of each line, and one line after the other
  for (std::size_t j = 0; j < kAhead; ++j) fetch(j);
  for (std::size_t j = 0; j < of.groups; ++j) {
    fetch(j + kAhead);
    const std::uint16_t bits[] = {of.scale(block, c, j), f.minimum ? of.minimum(block, c, j) : std::uint16_t{0}};
    float halves[2];
    t.widen(DType::kFloat16, bits, halves, 2);
    const std::size_t begin = j * f.group, end = std::min(table.dim, begin + f.group);
    make(of.group(block, j) + of.place(c, 0), end - begin, {halves[0], halves[1], table.scale[r], of.zero(block, c, j)}, to + begin);
  }
}

}  // namespace

void embedding_lookup(const EmbeddingTable& rows_of, std::size_t rows, const Indices& indices, float* out,
                      std::size_t out_stride, int threads) {
  check(indices, rows);
  const KernelTable& t = table();
  threads = threads_for(threads, 5.0 * static_cast<double>(indices.count) * static_cast<double>(rows_of.dim));
  auto work = [&](int, int thread, int of) {
    const FloatMode mode;
    const Share part = share(indices.count, 1, thread, of);
    t.embedding_lookup({rows_of, indices.data, indices.wide, part.begin, part.end, out, out_stride});
  };
  parallel(threads, 1, work);
}

void packed_lookup(const EmbeddingTable& rows_of, std::size_t rows, const Indices& indices, float* out, int threads,
                   const WeightFormat& format) {
  check(indices, rows);
  const std::size_t dim = rows_of.dim;
  const KernelTable& t = table();
  threads = threads_for(threads, (4.0 + static_cast<double>(kAlign / kBlockK)) * static_cast<double>(indices.count) * static_cast<double>(dim));
  auto work = [&](int, int thread, int of) {
    const FloatMode mode;
    const Share part = share(indices.count, 1, thread, of);
    for (std::size_t i = part.begin; i < part.end; ++i) {
      const std::size_t r = indices.wide ? static_cast<std::size_t>(static_cast<const std::int64_t*>(indices.data)[i])
                                         : static_cast<std::size_t>(static_cast<const std::int32_t*>(indices.data)[i]);
      if (format.group) grouped_row(t, rows_of, format, r, out + i * dim);
      else packed_row(rows_of, r, out + i * dim);
    }
  };
  parallel(threads, 1, work);
}

void embedding_bag(const EmbeddingTable& rows_of, std::size_t rows, const Indices& indices, const Bags& bags,
                   float* out, std::size_t out_stride, int threads) {
  check(indices, rows);
  if (bags.count == 0) return;
  const std::size_t* starts = starts_of(bags, indices.count);
  const KernelTable& t = table();
  const auto all = static_cast<double>(indices.count + 4 * bags.count);
  threads = threads_for(threads, all * static_cast<double>(rows_of.dim));
  auto work = [&](int, int thread, int of) {
    const FloatMode mode;
    // Bags as their indices lie in equal shares: some bags are long.
    const Share part = share(indices.count, 1, thread, of);
    const auto bag = [&](std::size_t index) {
      return static_cast<std::size_t>(std::lower_bound(starts, starts + bags.count, index) - starts);
    };
    const std::size_t begin = thread == 0 ? 0 : bag(part.begin), end = thread + 1 == of ? bags.count : bag(part.end);
    t.embedding_bag({rows_of, indices.data, indices.wide, indices.count, starts, begin, end, bags.weights, bags.padding,
                     bags.mode, out, out_stride});
  };
  parallel(threads, 1, work);
}

}  // namespace octavo
