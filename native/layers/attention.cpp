#include "layers/attention.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "contract/tables.h"
#include "runtime/arena.h"
#include "runtime/parallel.h"

namespace octavo {
namespace {

struct AttentionScratch;

// How many threads earn their start (some microseconds).
int useful_threads(int threads, double macs) {
  return std::max(1, std::min(threads, static_cast<int>(std::min(1e6, macs / 4e4 / 7.0))));
}

// One call, as its threads see it. A piece of work is a panel of queries of one batch item, for some of
// the heads.
struct AttentionCall {
  const KernelTable& t;
  const AttentionInputs& in;
  std::size_t panels, parts;
  std::uint8_t* base = nullptr;
  std::size_t staged = 0, queries = 0, bias = 0, scores = 0, sums = 0, out = 0, per_thread = 0;

  AttentionCall(const AttentionInputs& inputs, int threads)
      : t(table()), in(inputs), panels((inputs.queries + kPanelQueries - 1) / kPanelQueries) {
    const std::size_t items = in.batch * panels, wanted = static_cast<std::size_t>(threads);
    parts = items >= wanted ? 1 : std::min(in.heads, (wanted + items - 1) / items);
    Layout layout;
    const std::size_t widest = round_up(std::max({in.depth, in.value_depth, biased() ? in.keys : 0}), 16);
    staged = layout.add<float>(kPanelQueries * widest);
    queries = layout.add<float>(round_up(in.depth, 16) * kPanelQueries);
    bias = layout.add<float>(biased() ? round_up(in.keys, 16) * kPanelQueries : 0);
    scores = layout.add<float>(in.keys * kPanelQueries);
    sums = layout.add<float>(kPanelQueries);
    out = layout.add<float>(round_up(in.value_depth, 16) * kPanelQueries);
    per_thread = layout.bytes();
    base = scratch<AttentionScratch>(per_thread * wanted);
  }

  float* at(std::size_t offset, int thread) const {
    return reinterpret_cast<float*>(base + static_cast<std::size_t>(thread) * per_thread + offset);
  }

  bool biased() const { return in.bias || in.mask; }

  // Rows of `width` floats as a panel [width][64]; zeros for queries that there are not.
  void transpose(const float* rows, std::size_t count, std::size_t stride, std::size_t width, float* panel, int thread) const {
    if (width % 16 == 0 && count % 16 == 0) return t.transpose({rows, count, width, stride, panel, kPanelQueries});
    transpose_each(count, width, panel, thread, [=](std::size_t r, float* to) { std::memcpy(to, rows + r * stride, width * sizeof(float)); });
  }

  // The same for rows that write(row, to) writes.
  template <class Write>
  void transpose_each(std::size_t count, std::size_t width, float* panel, int thread, const Write& write) const {
    const std::size_t padded = round_up(width, 16), columns = round_up(count, 16);
    float* stage = at(staged, thread);
    for (std::size_t r = 0; r < count; ++r) {
      write(r, stage + r * padded);
      std::fill(stage + r * padded + width, stage + (r + 1) * padded, 0.0f);
    }
    std::fill(stage + count * padded, stage + columns * padded, 0.0f);
    t.transpose({stage, columns, padded, padded, panel, kPanelQueries});
  }

  // Whether all rows of a bias or mask are the same.
  template <class T>
  bool same_rows(const T* rows, std::size_t count) const {
    if (in.bias_query == 0) return true;
    if (in.bias_key != 1) return false;
    for (std::size_t r = 1; r < count; ++r)
      if (std::memcmp(rows, rows + r * in.bias_query, in.keys * sizeof(T)) != 0) return false;
    return true;
  }

  void piece(std::size_t index, int thread) const {
    const std::size_t part = index % parts, panel = index / parts % panels, item = index / parts / panels;
    const std::size_t first = panel * kPanelQueries, count = std::min(kPanelQueries, in.queries - first);
    const std::size_t out_stride = in.heads * in.value_depth;
    AttentionPanel p{};
    p.queries = at(queries, thread);
    p.columns = round_up(count, 16);
    p.depth = in.depth;
    p.keys = in.keys;
    p.value_depth = in.value_depth;
    p.scale = in.scale;
    p.k_stride = in.k_steps.row;
    p.v_stride = in.v_steps.row;
    p.scores = at(scores, thread);
    p.sums = at(sums, thread);
    p.out = at(out, thread);
    const std::size_t heads_begin = in.heads * part / parts, heads_end = in.heads * (part + 1) / parts;
    std::uint64_t hidden = 0;  // queries, a bit each, that no key counts for
    for (std::size_t h = heads_begin; h < heads_end; ++h) {
      if (biased() && (h == heads_begin || in.bias_head)) {
        const std::size_t offset = item * in.bias_batch + h * in.bias_head + first * in.bias_query;
        float* own = at(bias, thread);
        p.bias = p.bias_panel = nullptr;
        if (in.bias) {
          load_bias(p, in.bias + offset, count, own, thread, [](float x) { return x; });
        } else {
          hidden = queries_without_keys(in.mask + offset, count);
          load_bias(p, in.mask + offset, count, own, thread,
               [](std::uint8_t x) { return x ? 0.0f : -std::numeric_limits<float>::infinity(); });
        }
      }
      const float* q_rows = in.q + item * in.q_steps.batch + first * in.q_steps.row + h * in.q_steps.head;
      transpose(q_rows, count, in.q_steps.row, in.depth, at(queries, thread), thread);
      p.k = in.k + item * in.k_steps.batch + h * in.k_steps.head;
      p.v = in.v + item * in.v_steps.batch + h * in.v_steps.head;
      t.attention(p);
      float* out_rows = in.out + (item * in.queries + first) * out_stride + h * in.value_depth;
      store_rows(p, out_rows, count, out_stride, thread);
      for (std::size_t r = 0; hidden != 0 && r < count; ++r)
        if (hidden >> r & 1) std::fill(out_rows + r * out_stride, out_rows + r * out_stride + in.value_depth, 0.0f);
    }
  }

  // Rows of a bias, or of a mask as a bias.
  template <class T, class Value>
  void load_bias(AttentionPanel& p, const T* rows, std::size_t count, float* own, int thread, const Value& value) const {
    const auto write = [&](std::size_t r, float* to) {
      for (std::size_t i = 0; i < in.keys; ++i) to[i] = value(rows[r * in.bias_query + i * in.bias_key]);
    };
    if (same_rows(rows, count)) {
      write(0, own);
      p.bias = own;
    } else {
      transpose_each(count, in.keys, own, thread, write);
      p.bias_panel = own;
    }
  }

  std::uint64_t queries_without_keys(const std::uint8_t* rows, std::size_t count) const {
    std::uint64_t found = 0;
    for (std::size_t r = 0; r < count; ++r) {
      std::size_t i = 0;
      while (i < in.keys && rows[r * in.bias_query + i * in.bias_key] == 0) ++i;
      if (i == in.keys) found |= std::uint64_t{1} << r;
    }
    return found;
  }

  // A panel's results to their rows.
  void store_rows(const AttentionPanel& p, float* rows, std::size_t count, std::size_t stride, int thread) const {
    const std::size_t padded = round_up(in.value_depth, 16);
    if (padded == in.value_depth && p.columns == count) return t.transpose({p.out, padded, count, kPanelQueries, rows, stride});
    float* stage = at(staged, thread);
    t.transpose({p.out, padded, p.columns, kPanelQueries, stage, padded});
    for (std::size_t r = 0; r < count; ++r) std::memcpy(rows + r * stride, stage + r * padded, in.value_depth * sizeof(float));
  }

  void operator()(int, int thread, int threads) const {
    const FloatMode mode;
    const Share mine = share(in.batch * panels * parts, 1, thread, threads);
    for (std::size_t i = mine.begin; i < mine.end; ++i) piece(i, thread);
  }
};

}  // namespace

void attention(const AttentionInputs& in, int threads) {
  const std::size_t rows = in.batch * in.queries;
  if (rows == 0 || in.heads == 0 || in.value_depth == 0) return;
  if (in.keys == 0) {
    std::memset(in.out, 0, rows * in.heads * in.value_depth * sizeof(float));
    return;
  }
  const double macs = static_cast<double>(rows * in.heads * in.keys) * static_cast<double>(in.depth + in.value_depth);
  threads = useful_threads(threads, macs);
  AttentionCall call(in, threads);
  parallel(threads, 1, call);
}

}  // namespace octavo
