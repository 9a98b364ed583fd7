// A run of ai.octavo.CachedAttention: where its inputs are, and the sizes of all that they make.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ort_ops/kernel.h"
#include "ort_ops/tensor.h"

namespace octavo::ort {

// What the node says of its runs.
struct CachedAttentionForm {
  std::size_t heads = 0, kv_heads = 0;
  std::size_t window = 0;  // keys that a query sees; 0: all
  bool evicts = false;     // a past holds the rows of the window, and a few more, not all that there were
  // Where inputs are; 0: not given.
  std::size_t key = 0, value = 0, past_key = 0, past_value = 0, cos = 0, sin = 0, positions = 0, bias = 0, sinks = 0;
};

struct CachedAttentionProblem {
  std::size_t batch, rows, depth, value_depth, total;
  std::size_t past_rows = 0, present_rows;
  const float *q, *k, *v;
  std::size_t q_width, k_width, v_width;  // elements of a row
  const float *past_key = nullptr, *past_value = nullptr;
  std::vector<std::size_t> before;        // rows of the past of each item that count
  bool alike = true;                      // they are as many in all
  std::vector<std::size_t> first;         // the place of each item's first new row among all that there were
  std::vector<std::size_t> keys;          // of each item, with the new ones
  const float *cos = nullptr, *sin = nullptr;
  std::size_t half = 0;                   // elements of a row of these
  std::vector<std::int64_t> positions;    // of every row, where they turn
  const float *bias = nullptr, *sinks = nullptr;
  Shape bias_shape;

  // Throws Error.
  CachedAttentionProblem(const Call& call, const CachedAttentionForm& form);

  // Rows that stay in a past that evicts, of `count` that there were.
  std::size_t resident(std::size_t count) const;
  // Whether all rows, with the new ones, fit into the present.
  bool fits() const;

 private:
  void read_rows(const Call& call);
  void read_past(const Call& call);
  void read_lengths(const Call& call);
  void read_rotary(const Call& call);
  void read_added(const Call& call);

  const CachedAttentionForm& form_;
};

}  // namespace octavo::ort
