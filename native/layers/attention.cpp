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

  bool biased() const { return in.bias || in.mask || in.causal || in.window; }

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

  void piece(std::size_t index, int thread) const {
    const std::size_t part = index % parts, panel = index / parts % panels, item = index / parts / panels;
    const std::size_t first = panel * kPanelQueries, count = std::min(kPanelQueries, in.queries - first);
    AttentionPanel p{};
    p.queries = at(queries, thread);
    p.columns = round_up(count, 16);
    p.depth = in.depth;
    p.keys = in.keys;
    p.value_depth = in.value_depth;
    p.scale = in.scale;
    p.softcap = in.softcap;
    p.k_stride = in.k_steps.row;
    p.v_stride = in.v_steps.row;
    p.scores = at(scores, thread);
    p.sums = at(sums, thread);
    p.out = at(out, thread);
    const std::size_t group = in.heads / in.kv_heads;
    const std::size_t heads_begin = in.heads * part / parts, heads_end = in.heads * (part + 1) / parts;
    std::uint64_t hidden = 0;  // queries, a bit each, that no key counts for
    for (std::size_t h = heads_begin; h < heads_end; ++h) {
      if (biased() && (h == heads_begin || in.bias_head || in.mask_head)) hidden = load_bias(p, item, h, first, count, thread);
      const float* q_rows = in.q + item * in.q_steps.batch + first * in.q_steps.row + h * in.q_steps.head;
      transpose(q_rows, count, in.q_steps.row, in.depth, at(queries, thread), thread);
      p.k = in.k + item * in.k_steps.batch + h / group * in.k_steps.head;
      p.v = in.v + item * in.v_steps.batch + h / group * in.v_steps.head;
      t.attention(p);
      float* out_rows = in.out + item * in.out_steps.batch + first * in.out_steps.row + h * in.out_steps.head;
      store_rows(p, out_rows, count, in.out_steps.row, thread);
      for (std::size_t r = 0; hidden != 0 && r < count; ++r)
        if (hidden >> r & 1) std::fill(out_rows + r * in.out_steps.row, out_rows + r * in.out_steps.row + in.value_depth, 0.0f);
    }
  }

  // What is added for some queries of a head, as a panel: -infinity where a key does not count. Returns the queries,
  // a bit each, that none counts for.
  std::uint64_t load_bias(AttentionPanel& p, std::size_t item, std::size_t head, std::size_t first, std::size_t count,
                          int thread) const {
    std::uint64_t hidden = 0;
    const auto write = [&](std::size_t r, float* to) {
      const std::size_t query = first + r;
      const Keys counted = keys_of(query);
      const float* added = in.bias ? in.bias + item * in.bias_batch + head * in.bias_head + query * in.bias_query : nullptr;
      const std::uint8_t* mask = in.mask ? in.mask + item * in.mask_batch + head * in.mask_head + query * in.mask_query : nullptr;
      bool any = false;
      for (std::size_t i = 0; i < in.keys; ++i) {
        const bool counts = i >= counted.begin && i < counted.end && (!mask || mask[i * in.mask_key]);
        any |= counts;
        to[i] = !counts ? -std::numeric_limits<float>::infinity() : added ? added[i * in.bias_key] : 0.0f;
      }
      if (!any) hidden |= std::uint64_t{1} << r;
    };
    transpose_each(count, in.keys, at(bias, thread), thread, write);
    p.bias_panel = at(bias, thread);
    return hidden;
  }

  // The keys that causality and the window leave to a query.
  struct Keys {
    std::size_t begin, end;
  };
  Keys keys_of(std::size_t query) const {
    const auto keys = static_cast<std::ptrdiff_t>(in.keys), last = static_cast<std::ptrdiff_t>(query) + in.offset;
    const auto inside = [&](std::ptrdiff_t key) { return static_cast<std::size_t>(std::max<std::ptrdiff_t>(0, std::min(keys, key))); };
    return {in.window ? inside(last + 1 - static_cast<std::ptrdiff_t>(std::min(in.window, in.keys + in.queries))) : 0, in.causal ? inside(last + 1) : in.keys};
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
    for (std::size_t i = 0; i < rows * in.heads; ++i) {
      const std::size_t head = i % in.heads, row = i / in.heads % in.queries, item = i / in.heads / in.queries;
      float* out = in.out + item * in.out_steps.batch + row * in.out_steps.row + head * in.out_steps.head;
      std::fill(out, out + in.value_depth, 0.0f);
    }
    return;
  }
  const double macs = static_cast<double>(rows * in.heads * in.keys) * static_cast<double>(in.depth + in.value_depth);
  threads = useful_threads(threads, macs);
  AttentionCall call(in, threads);
  parallel(threads, 1, call);
}

}  // namespace octavo
