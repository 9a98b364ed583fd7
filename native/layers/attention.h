// Scaled dot-product attention in float32, over the table in use: softmax(scale Q K^T + bias) V for every
// head, where Q, K and V lie as linear layers leave them, heads side by side in a row.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo {

struct AttentionInputs {
  std::size_t batch, heads, queries, keys, depth, value_depth;
  const float* q;     // [batch][queries][heads][depth]
  const float* k;     // [batch][keys][heads][depth]
  const float* v;     // [batch][keys][heads][value_depth]
  // Elements from one to the next; 0 where there is one for all.
  struct Steps {
    std::size_t batch, row, head;
  } q_steps, k_steps, v_steps;
  float scale;
  // [batch][heads][queries][keys] with these strides, in elements (0 where it repeats); null: none. At most
  // one of the two: what is added to the products, or which keys count at all (not 0) for a query.
  const float* bias;
  const std::uint8_t* mask;
  std::size_t bias_batch, bias_head, bias_query, bias_key;
  float* out;         // [batch][queries][heads * value_depth]
};

// Rows without keys, and those whose mask hides all of them, are 0. Throws std::bad_alloc before anything is written.
void attention(const AttentionInputs& in, int threads);

}  // namespace octavo
