// Attention of a few queries to many keys. Keys are cut into chunks whatever the number of threads, so that it changes
// no bit; what the chunks give is merged in order.
#include <algorithm>
#include <cstring>
#include <limits>

#include "layers/attention_call.h"
#include "runtime/arena.h"
#include "runtime/parallel.h"

namespace octavo {
namespace {

constexpr std::size_t kChunkKeys = 256;
constexpr std::size_t kPartFloats = sizeof(AttentionPart) / sizeof(float);

struct AttentionScratch;

// One call, as its threads see it: chunks of keys of a batch item's kv head, then columns to merge.
struct RowsCall : AttentionCall {
  Keys keys;  // that count for some query
  std::size_t heads, chunks, part_floats;
  std::size_t merged;  // chunks, and one for the sinks
  mutable Pieces pieces, merges;
  std::uint8_t* base = nullptr;
  struct {
    std::size_t queries, bias, scores, end;
  } at{};  // a thread's scratch memory
  std::size_t parts_bytes = 0;  // before that of the threads

  RowsCall(const AttentionCall& call, int threads)
      : AttentionCall(call),
        keys(keys_of(0, in.queries - 1)),
        heads(in.batch * in.kv_heads),
        chunks((keys.end + kChunkKeys - 1) / kChunkKeys - std::min(keys.begin, keys.end) / kChunkKeys),
        part_floats(kPartFloats + round_up(in.value_depth, 16)),
        merged(chunks + (in.sinks ? 1 : 0)),
        pieces(heads * chunks),
        merges(heads * columns) {
    const std::size_t block = std::min(round_up(in.keys, 16), kChunkKeys);
    Layout parts, layout;
    parts.add<float>(heads * columns * merged * part_floats);
    parts_bytes = parts.bytes();
    at.queries = layout.add<float>(columns * in.depth);
    at.bias = layout.add<float>(columns * block);
    at.scores = layout.add<float>(columns * block);
    at.end = layout.bytes();
    base = scratch<AttentionScratch>(parts_bytes + at.end * static_cast<std::size_t>(threads));
  }

  // What the first chunk gives a column; the next columns' parts follow, then the next chunks'.
  AttentionPart* part(std::size_t head, std::size_t chunk, std::size_t c) const {
    return reinterpret_cast<AttentionPart*>(reinterpret_cast<float*>(base) + ((head * merged + chunk) * columns + c) * part_floats);
  }

  void operator()(int phase, int thread, int) const {
    const FloatMode mode;
    std::size_t i;
    if (phase == 0)
      while (pieces.take(i)) chunk(i / chunks, i % chunks, base + parts_bytes + static_cast<std::size_t>(thread) * at.end);
    else
      while (merges.take(i)) merge(i / columns, i % columns);
  }

  void chunk(std::size_t head, std::size_t index, std::uint8_t* memory) const {
    const auto own = [memory](std::size_t offset) { return reinterpret_cast<float*>(memory + offset); };
    const std::size_t item = head / in.kv_heads, kv_head = head % in.kv_heads, first = (keys.begin / kChunkKeys + index) * kChunkKeys;
    const std::size_t begin = std::max(first, keys.begin), end = std::min(first + kChunkKeys, keys.end);
    AttentionRows a{};
    a.queries = own(at.queries);
    for (std::size_t c = 0; c < columns; ++c)
      std::memcpy(own(at.queries) + c * in.depth, q(item, column(kv_head, c)), in.depth * sizeof(float));
    a.columns = columns;
    a.depth = in.depth;
    a.keys = end - begin;
    a.value_depth = in.value_depth;
    a.scale = in.scale;
    a.softcap = in.softcap;
    a.k = k(item, kv_head, begin);
    a.k_stride = in.k_steps.row;
    a.v = v(item, kv_head, begin);
    a.v_stride = in.v_steps.row;
    const float* rows[kFewColumns];
    bool wanted = false;
    for (std::size_t c = 0; c < columns; ++c) {
      const Row row = bias_of(item, column(kv_head, c), begin, end, own(at.bias) + c * round_up(a.keys, 16));
      rows[c] = row.values;
      wanted |= row.values != nullptr;
      part(head, index, c)->counts = row.counts ? 1.0f : 0.0f;
    }
    a.bias = wanted ? rows : nullptr;
    a.scores = own(at.scores);
    a.parts = part(head, index, 0);
    a.part_floats = part_floats;
    t.attention_rows(a);
  }

  // What is added to a query's products, -infinity where a key does not count.
  struct Row {
    const float* values;  // null: nothing
    bool counts;          // whether any key does
  };
  Row bias_of(std::size_t item, Column c, std::size_t begin, std::size_t end, float* own) const {
    const Keys reached = keys_of(c.query, c.query);
    const bool ranged = reached.begin > begin || reached.end < end;
    const float* added = in.bias ? bias(item, c, begin) : nullptr;
    if (!ranged && !in.mask && (!added || in.bias_key == 1)) return {added, true};
    const std::uint8_t* shown = in.mask ? mask(item, c, begin) : nullptr;
    bool any = false;
    for (std::size_t i = 0; i < end - begin; ++i) {
      const bool counts = begin + i >= reached.begin && begin + i < reached.end && (!shown || shown[i * in.mask_key]);
      own[i] = !counts ? -std::numeric_limits<float>::infinity() : added ? added[i * in.bias_key] : 0.0f;
      any |= counts;
    }
    return {own, any};
  }

  void merge(std::size_t head, std::size_t c) const {
    const std::size_t item = head / in.kv_heads, kv_head = head % in.kv_heads;
    if (in.sinks) {
      AttentionPart* sink = part(head, chunks, c);
      std::memset(sink, 0, part_floats * sizeof(float));
      sink->top = in.sinks[column(kv_head, c).head];
      sink->sum = 1.0f;
    }
    t.merge_parts({part(head, 0, c), merged, columns * part_floats, in.value_depth, out(item, column(kv_head, c))});
  }
};

}  // namespace

void attention_rows(const AttentionCall& call, int threads) {
  RowsCall job(call, threads);
  parallel(threads, 2, job);
}

}  // namespace octavo
