// Attention of many queries: panels of 64 columns, each over blocks of keys. Scratch memory is a block's, however many
// keys there are; with products of bfloat16 it is that and the pairs of some heads.
#include <algorithm>
#include <cstring>
#include <limits>

#include "layers/attention_call.h"
#include "layers/attention_pairs.h"
#include "runtime/arena.h"
#include "runtime/parallel.h"

namespace octavo {
namespace {

constexpr float kMostScore = std::numeric_limits<float>::max();
constexpr std::size_t kBlockKeys = 256;  // scores of a panel and a block are 64 KB

constexpr std::size_t kPairBytes = 8 << 20;  // of the heads that are packed at once, but of one at least

struct AttentionScratch;

// Some heads of a call, as its threads see them; a head is a batch item's kv head. A piece of work is a panel of one.
struct PanelCall : AttentionCall {
  std::size_t panels, first_head;
  AttentionPairs pairs;  // of these heads; nothing is packed where products are float32
  mutable Pieces pieces;
  std::uint8_t* base = nullptr;
  struct {
    std::size_t staged, queries, bias, counts, scores, factor, top, sums, out, end;
  } at{};  // a thread's scratch memory

  PanelCall(const AttentionCall& call, std::size_t first, std::size_t heads, int threads)
      : AttentionCall(call),
        panels((columns + kPanelQueries - 1) / kPanelQueries),
        first_head(first),
        pairs(call, first, heads),
        pieces(heads * panels) {
    const std::size_t block = std::min(round_up(in.keys, 16), kBlockKeys);
    Layout layout;
    at.staged = layout.add<float>(kPanelQueries * round_up(std::max({in.depth, in.value_depth, in.bias ? block : 0}), 16));
    at.queries = layout.add<float>(round_up(in.depth, 16) * kPanelQueries);
    at.bias = layout.add<float>(in.bias ? block * kPanelQueries : 0);
    at.counts = layout.add<std::uint64_t>(block);
    at.scores = layout.add<float>(block * kPanelQueries);
    at.factor = layout.add<float>(kPanelQueries);
    at.top = layout.add<float>(kPanelQueries);
    at.sums = layout.add<float>(kPanelQueries);
    at.out = layout.add<float>(round_up(in.value_depth, 16) * kPanelQueries);
    at.end = layout.bytes();
    const std::size_t packed = bfloat16 ? round_up(pairs.bytes(), kAlign) : 0;
    base = scratch<AttentionScratch>(packed + at.end * static_cast<std::size_t>(threads));
    pairs.use(base);
    base += packed;
  }

  void operator()(int phase, int thread, int threads) const;
};

class Panel {
  using Keys = AttentionCall::Keys;
  using Column = AttentionCall::Column;

 public:
  Panel(const PanelCall& call, std::size_t piece, std::uint8_t* memory)
      : call_(call),
        in_(call.in),
        memory_(memory),
        head_(call.first_head + piece / call.panels),
        item_(head_ / in_.kv_heads),
        kv_head_(head_ % in_.kv_heads),
        // The last queries first: with causality they have the most keys.
        first_((call.panels - 1 - piece % call.panels) * kPanelQueries),
        count_(std::min(kPanelQueries, call.columns - first_)),
        all_(count_ == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count_) - 1) {
    p_.queries = at(call.at.queries);
    p_.columns = round_up(count_, 16);
    p_.depth = in_.depth;
    p_.value_depth = in_.value_depth;
    p_.scale = in_.scale;
    p_.softcap = in_.softcap;
    p_.k_stride = call_.bfloat16 ? call.pairs.inputs() : in_.k_steps.row;
    p_.v_stride = call_.bfloat16 ? in_.value_depth : in_.v_steps.row;
    p_.scores = at(call.at.scores);
    p_.factor = at(call.at.factor);
    p_.top = at(call.at.top);
    p_.sums = at(call.at.sums);
    p_.out = at(call.at.out);
    p_.first = true;
  }

  void run() {
    load_queries();
    if (in_.sinks) sink();
    Keys keys = call_.keys_of(column(0).query, column(count_ - 1).query);
    if (call_.bfloat16) keys.begin -= keys.begin % 2;
    for (std::size_t begin = keys.begin; begin < keys.end;) {
      const std::size_t end = std::min(keys.end, (begin / kBlockKeys + 1) * kBlockKeys);
      p_.last = end == keys.end;
      block(begin, end - begin);
      begin = end;
    }
    store();
  }

 private:
  float* at(std::size_t offset) const { return reinterpret_cast<float*>(memory_ + offset); }
  Column column(std::size_t c) const { return call_.column(kv_head_, first_ + c); }

  // As if a block before the first had given each column its head's sink: a weight of 1, and values of 0.
  void sink() {
    for (std::size_t c = 0; c < p_.columns; ++c) {
      const float score = c < count_ ? in_.sinks[column(c).head] : 0.0f;
      p_.top[c] = score < -kMostScore ? -kMostScore : score;  // -infinity less itself is no number
      p_.sums[c] = 1.0f;
    }
    std::fill(p_.out, p_.out + round_up(in_.value_depth, 16) * kPanelQueries, 0.0f);
    p_.first = false;
  }

  void block(std::size_t first, std::size_t keys) {
    p_.keys = count_keys(first, keys) ? keys : 0;
    if (p_.keys == 0 && (p_.first || !p_.last)) return;  // the last block divides what others gave
    p_.k = call_.bfloat16 ? call_.pairs.k(head_, first) : call_.k(item_, kv_head_, first);
    p_.v = call_.bfloat16 ? call_.pairs.v(head_, first) : call_.v(item_, kv_head_, first);
    if (in_.bias && p_.keys) load_bias(first, keys);
    call_.bfloat16 ? call_.t.attention_pairs(p_) : call_.t.attention_panel(p_);
    p_.first = false;
  }

  void load_queries() const {
    float* panel = at(call_.at.queries);
    const auto row = [&](std::size_t c) { return call_.q(item_, column(c)); };
    if (!call_.bfloat16) return load_rows(in_.depth, in_.q_steps.row, panel, row);
    const std::size_t inputs = call_.pairs.inputs(), padded = round_up(inputs, 16);
    float* stage = at(call_.at.staged);
    std::memset(stage, 0, p_.columns * padded * sizeof(float));
    for (std::size_t c = 0; c < count_; ++c) pair_inputs(call_.t, row(c), in_.depth, stage + c * padded);
    call_.t.transpose({stage, p_.columns, padded, padded, panel, kPanelQueries});
  }

  // Sets p_.counts. Whether any of the keys counts for any query.
  bool count_keys(std::size_t first, std::size_t keys) {
    p_.counts = nullptr;
    const bool ranged = is_ranged(first, keys);
    if (!ranged && !in_.mask) {
      seen_ = all_;
      return true;
    }
    auto* counts = reinterpret_cast<std::uint64_t*>(memory_ + call_.at.counts);
    if (in_.mask) {
      const std::uint8_t* rows[kPanelQueries];
      const std::size_t different = call_.one_mask() ? 1 : count_;
      for (std::size_t c = 0; c < different; ++c) rows[c] = call_.mask(item_, column(c), first);
      call_.t.key_bits({rows, different, in_.mask_key, keys, counts});
    }
    std::uint64_t any = 0, every = all_;
    for (std::size_t i = 0; i < keys; ++i) {
      if (!in_.mask || (call_.one_mask() && counts[i])) counts[i] = all_;
      if (ranged) counts[i] &= range(first + i);
      any |= counts[i];
      every &= counts[i];
    }
    seen_ |= any;
    if (every != all_) p_.counts = counts;
    return any != 0;
  }

  // Whether causality or the window hides some of these keys from some query.
  bool is_ranged(std::size_t first, std::size_t keys) const {
    const Keys earliest = call_.keys_of(column(0).query, column(0).query);
    const Keys latest = call_.keys_of(column(count_ - 1).query, column(count_ - 1).query);
    return earliest.end < first + keys || latest.begin > first;
  }

  // The columns that a key is in reach of: key t <= query + offset where query >= t - offset, and so on.
  std::uint64_t range(std::size_t key) const {
    const std::ptrdiff_t from = static_cast<std::ptrdiff_t>(key) - in_.offset;
    std::uint64_t bits = all_;
    if (in_.causal) bits &= ~below(from);
    if (in_.window) bits &= below(from + call_.reach());
    return bits;
  }

  // The columns whose query is less than that.
  std::uint64_t below(std::ptrdiff_t query) const {
    if (query <= 0) return 0;
    const std::size_t columns = std::min(static_cast<std::size_t>(query), in_.queries) * call_.group;
    if (columns <= first_) return 0;
    return columns - first_ >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << (columns - first_)) - 1;
  }

  void load_bias(std::size_t first, std::size_t keys) {
    float* own = at(call_.at.bias);
    p_.bias = p_.bias_panel = nullptr;
    const auto row = [&](std::size_t c) { return call_.bias(item_, column(c), first); };
    if (call_.one_bias()) {
      p_.bias = in_.bias_key == 1 ? row(0) : own;
      for (std::size_t i = 0; in_.bias_key != 1 && i < keys; ++i) own[i] = row(0)[i * in_.bias_key];
      return;
    }
    load_rows(keys, in_.bias_query, own, row, in_.bias_key);
    p_.bias_panel = own;
  }

  // Rows of `width` floats, `step` apart, as a panel [width][64]; zeros for columns that there are not. With one
  // query head to a kv head rows lie `stride` apart.
  template <class Row>
  void load_rows(std::size_t width, std::size_t stride, float* panel, const Row& row, std::size_t step = 1) const {
    if (call_.group == 1 && step == 1 && width % 16 == 0 && count_ % 16 == 0)
      return call_.t.transpose({row(0), count_, width, stride, panel, kPanelQueries});
    const std::size_t padded = round_up(width, 16);
    float* stage = at(call_.at.staged);
    for (std::size_t c = 0; c < count_; ++c) {
      const float* from = row(c);
      float* to = stage + c * padded;
      if (step == 1) std::memcpy(to, from, width * sizeof(float));
      for (std::size_t i = 0; step != 1 && i < width; ++i) to[i] = from[i * step];
      std::fill(to + width, to + padded, 0.0f);
    }
    std::fill(stage + count_ * padded, stage + p_.columns * padded, 0.0f);
    call_.t.transpose({stage, p_.columns, padded, padded, panel, kPanelQueries});
  }

  // The results to their rows.
  void store() const {
    const std::size_t padded = round_up(in_.value_depth, 16);
    if (call_.group == 1 && padded == in_.value_depth && p_.columns == count_) {
      call_.t.transpose({p_.out, padded, count_, kPanelQueries, call_.out(item_, column(0)), in_.out_steps.row});
    } else {
      float* stage = at(call_.at.staged);
      call_.t.transpose({p_.out, padded, p_.columns, kPanelQueries, stage, padded});
      for (std::size_t c = 0; c < count_; ++c)
        std::memcpy(call_.out(item_, column(c)), stage + c * padded, in_.value_depth * sizeof(float));
    }
    for (std::size_t c = 0; seen_ != all_ && c < count_; ++c)
      if (!(seen_ >> c & 1)) std::memset(call_.out(item_, column(c)), 0, in_.value_depth * sizeof(float));
  }

  const PanelCall& call_;
  const AttentionInputs& in_;
  std::uint8_t* memory_;
  std::size_t head_, item_, kv_head_, first_, count_;
  std::uint64_t all_, seen_ = 0;  // columns, a bit each: those that there are, and for which a key counts
  AttentionPanel p_{};
};

void PanelCall::operator()(int phase, int thread, int threads) const {
  const FloatMode mode;
  if (bfloat16 && phase == 0) {
    const Share own = share(pairs.pieces(), 1, thread, threads);
    for (std::size_t piece = own.begin; piece < own.end; ++piece) pairs.pack(piece);
    return;
  }
  for (std::size_t piece; pieces.take(piece);) Panel(*this, piece, base + static_cast<std::size_t>(thread) * at.end).run();
}

}  // namespace

void attention_panels(const AttentionCall& call, int threads) {
  const std::size_t heads = call.in.batch * call.in.kv_heads;
  const std::size_t most = call.bfloat16 ? std::max<std::size_t>(1, kPairBytes / AttentionPairs::bytes_of(call)) : heads;
  for (std::size_t first = 0; first < heads; first += most) {
    PanelCall job(call, first, std::min(most, heads - first), threads);
    parallel(threads, call.bfloat16 ? 2 : 1, job);
  }
}

}  // namespace octavo
