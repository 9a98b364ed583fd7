#include "attention.h"

#include <algorithm>
#include <cstring>

#include "arena.h"
#include "parallel.h"
#include "tables.h"

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
    const std::size_t widest = round_up(std::max({in.depth, in.value_depth, in.bias ? in.keys : 0}), 16);
    staged = layout.add<float>(kPanelQueries * widest);
    queries = layout.add<float>(round_up(in.depth, 16) * kPanelQueries);
    bias = layout.add<float>(in.bias ? round_up(in.keys, 16) * kPanelQueries : 0);
    scores = layout.add<float>(in.keys * kPanelQueries);
    sums = layout.add<float>(kPanelQueries);
    out = layout.add<float>(round_up(in.value_depth, 16) * kPanelQueries);
    per_thread = layout.bytes();
    base = scratch<AttentionScratch>(per_thread * wanted);
  }

  float* at(std::size_t offset, int thread) const {
    return reinterpret_cast<float*>(base + static_cast<std::size_t>(thread) * per_thread + offset);
  }

  // Rows of `width` floats, `step` apart, as a panel [width][64]; zeros for queries that there are not.
  void turn(const float* rows, std::size_t count, std::size_t stride, std::size_t step, std::size_t width, float* panel,
            int thread) const {
    const std::size_t padded = round_up(width, 16), columns = round_up(count, 16);
    if (step == 1 && padded == width && columns == count) return t.transpose({rows, count, width, stride, panel, kPanelQueries});
    float* stage = at(staged, thread);
    for (std::size_t r = 0; r < count; ++r) {
      float* to = stage + r * padded;
      const float* from = rows + r * stride;
      if (step == 1) std::memcpy(to, from, width * sizeof(float));
      else
        for (std::size_t i = 0; i < width; ++i) to[i] = from[i * step];
      std::fill(to + width, to + padded, 0.0f);
    }
    std::fill(stage + count * padded, stage + columns * padded, 0.0f);
    t.transpose({stage, columns, padded, padded, panel, kPanelQueries});
  }

  // Whether all rows of a bias are the same.
  bool alike(const float* rows, std::size_t count) const {
    if (in.bias_query == 0) return true;
    if (in.bias_key != 1) return false;
    for (std::size_t r = 1; r < count; ++r)
      if (std::memcmp(rows, rows + r * in.bias_query, in.keys * sizeof(float)) != 0) return false;
    return true;
  }

  void piece(std::size_t index, int thread) const {
    const std::size_t part = index % parts, panel = index / parts % panels, item = index / parts / panels;
    const std::size_t first = panel * kPanelQueries, count = std::min(kPanelQueries, in.queries - first);
    const std::size_t q_stride = in.heads * in.depth, v_stride = in.heads * in.value_depth;
    AttentionPanel p{};
    p.queries = at(queries, thread);
    p.columns = round_up(count, 16);
    p.depth = in.depth;
    p.keys = in.keys;
    p.value_depth = in.value_depth;
    p.scale = in.scale;
    p.k_stride = q_stride;
    p.v_stride = v_stride;
    p.scores = at(scores, thread);
    p.sums = at(sums, thread);
    p.out = at(out, thread);
    const std::size_t heads_begin = in.heads * part / parts, heads_end = in.heads * (part + 1) / parts;
    for (std::size_t h = heads_begin; h < heads_end; ++h) {
      if (in.bias && (h == heads_begin || in.bias_head)) take_bias(p, item, h, first, count, thread);
      turn(in.q + item * in.q_batch + first * q_stride + h * in.depth, count, q_stride, 1, in.depth,
           at(queries, thread), thread);
      p.k = in.k + item * in.k_batch + h * in.depth;
      p.v = in.v + item * in.v_batch + h * in.value_depth;
      t.attention(p);
      give(p, in.out + (item * in.queries + first) * v_stride + h * in.value_depth, count, v_stride, thread);
    }
  }

  void take_bias(AttentionPanel& p, std::size_t item, std::size_t head, std::size_t first, std::size_t count, int thread) const {
    const float* rows = in.bias + item * in.bias_batch + head * in.bias_head + first * in.bias_query;
    p.bias = p.bias_panel = nullptr;
    float* own = at(bias, thread);
    if (alike(rows, count)) {
      for (std::size_t i = 0; i < in.keys; ++i) own[i] = rows[i * in.bias_key];
      p.bias = own;
    } else {
      turn(rows, count, in.bias_query, in.bias_key, in.keys, own, thread);
      p.bias_panel = own;
    }
  }

  // A panel's results to their rows.
  void give(const AttentionPanel& p, float* rows, std::size_t count, std::size_t stride, int thread) const {
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
