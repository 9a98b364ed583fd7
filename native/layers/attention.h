// Scaled dot-product attention, over the table in use: softmax(scale Q K^T + bias) V for every
// head, where Q, K, V and the output lie by strides.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo {

struct AttentionInputs {
  // Of query heads there are a whole number for each kv head: head h reads kv head h / (heads / kv_heads).
  std::size_t batch, heads, kv_heads, queries, keys, depth, value_depth;
  const float *q, *k, *v;
  // Elements from one to the next, 0 where there is one for all; what a head has of a row lies side by side.
  struct Steps {
    std::size_t batch, row, head;
  } q_steps, k_steps, v_steps, out_steps;
  float scale;
  // [batch][heads][queries][keys] with the strides below, in elements (0 where it repeats); null: none.
  const float* bias;          // added to the products
  const std::uint8_t* mask;   // 0: the key does not count
  std::size_t bias_batch, bias_head, bias_query, bias_key;
  std::size_t mask_batch, mask_head, mask_query, mask_key;
  // For query i key t counts if t <= i + offset (causal), and if t > i + offset - window (a window above 0).
  bool causal;
  std::ptrdiff_t offset;
  std::size_t window;
  // q k^T and weights v in products of bfloat16 where there are more than a few queries: docs/numbers.md.
  bool bfloat16;
  float softcap;              // s becomes softcap * tanh(s / softcap) before the bias; 0: it stays
  const float* sinks;         // [heads]: a score of each head that takes a share of the weights and has no value; null: none
  float* out;
};

// Rows without keys, and those none of whose keys counts, are 0. Throws std::bad_alloc before anything is written.
void attention(const AttentionInputs& in, int threads);

}  // namespace octavo
