// What the two ways to compute attention share: which query and head a column is, and which keys count for it.
//
// All query heads of one kv head read the same keys, so they stand together: column c of a kv head is query c / group
// of its head c % group. Columns of neighbouring queries count about the same keys.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "contract/tables.h"
#include "layers/attention.h"

namespace octavo {

// Up to here packing K and V as bfloat16 takes longer than their products save.
constexpr std::size_t kFewPairColumns = 16;

struct AttentionCall {
  const KernelTable& t;
  const AttentionInputs& in;
  std::size_t group, columns;  // query heads of a kv head; those times queries
  bool bfloat16;               // whether products are

  explicit AttentionCall(const AttentionInputs& inputs)
      : t(table()), in(inputs), group(inputs.heads / inputs.kv_heads), columns(inputs.queries * group), bfloat16(in.bfloat16 && columns > kFewPairColumns) {}

  // One column of a batch item's kv head.
  struct Column {
    std::size_t query, head;
  };
  Column column(std::size_t kv_head, std::size_t c) const { return {c / group, kv_head * group + c % group}; }

  const float* q(std::size_t item, Column c) const {
    return in.q + item * in.q_steps.batch + c.query * in.q_steps.row + c.head * in.q_steps.head;
  }
  const float* k(std::size_t item, std::size_t kv_head, std::size_t key) const {
    return in.k + item * in.k_steps.batch + kv_head * in.k_steps.head + key * in.k_steps.row;
  }
  const float* v(std::size_t item, std::size_t kv_head, std::size_t key) const {
    return in.v + item * in.v_steps.batch + kv_head * in.v_steps.head + key * in.v_steps.row;
  }
  float* out(std::size_t item, Column c) const {
    return in.out + item * in.out_steps.batch + c.query * in.out_steps.row + c.head * in.out_steps.head;
  }
  const float* bias(std::size_t item, Column c, std::size_t key) const {
    return in.bias + item * in.bias_batch + c.head * in.bias_head + c.query * in.bias_query + key * in.bias_key;
  }
  const std::uint8_t* mask(std::size_t item, Column c, std::size_t key) const {
    return in.mask + item * in.mask_batch + c.head * in.mask_head + c.query * in.mask_query + key * in.mask_key;
  }
  // Whether all columns of a kv head have one row of the bias, or of the mask.
  bool one_bias() const { return in.bias_query == 0 && (group == 1 || in.bias_head == 0); }
  bool one_mask() const { return in.mask_query == 0 && (group == 1 || in.mask_head == 0); }

  // The keys that causality and the window leave to queries first..last.
  struct Keys {
    std::size_t begin, end;
  };
  Keys keys_of(std::size_t first, std::size_t last) const {
    const auto inside = [&](std::ptrdiff_t key) {
      return static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(key, 0, static_cast<std::ptrdiff_t>(in.keys)));
    };
    const std::size_t begin = in.window ? inside(static_cast<std::ptrdiff_t>(first) + in.offset + 1 - reach()) : 0;
    const std::size_t end = in.causal ? inside(static_cast<std::ptrdiff_t>(last) + in.offset + 1) : in.keys;
    return {begin, std::max(begin, end)};
  }

  // The window; one that holds everything may be too large to add to.
  std::ptrdiff_t reach() const {
    const std::size_t all = in.keys + in.queries + static_cast<std::size_t>(std::max<std::ptrdiff_t>(in.offset, -in.offset));
    return static_cast<std::ptrdiff_t>(std::min(in.window, all));
  }
};

// Pieces of work that threads take one after the other, since pieces differ: which thread has which changes nothing.
class Pieces {
 public:
  explicit Pieces(std::size_t count) : count_(count) {}
  bool take(std::size_t& piece) { return (piece = next_.fetch_add(1, std::memory_order_relaxed)) < count_; }

 private:
  std::atomic<std::size_t> next_{0};
  std::size_t count_;
};

// Up to here a pass over a key for each column costs less than a panel that is mostly empty.
constexpr std::size_t kFewColumns = 8;

// Many columns, and few of them.
void attention_panels(const AttentionCall& call, int threads);
void attention_rows(const AttentionCall& call, int threads);

}  // namespace octavo
