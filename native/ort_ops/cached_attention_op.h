// ai.octavo.CachedAttention: causal attention of new rows to a cache and themselves, in float32, with rotary positions.
#pragma once

#include "layers/attention.h"
#include "ort_ops/cached_attention_problem.h"
#include "ort_ops/operator.h"

namespace octavo::ort {

// Inputs Q float32 [B, S, heads * D], lengths int32 [B], total int32 of one element, and those that the attribute `given`
// names, in its order:
//   key, value       [B, S, kv_heads * D] and [B, S, kv_heads * E]; without them Q is [B, S, (heads + 2 kv_heads) D], which
//                    holds queries, keys and values
//   past_key, past_value   [B, kv_heads, P, D] and [B, kv_heads, P, E]
//   cos, sin         [positions, R / 2]: they turn the first R elements of queries and keys
//   positions        int64 [B, S]: of which, where `total` is S, only the first counts
//   bias             [B or 1, heads or 1, S, total], added to the products
//   sinks            [heads]: a score of each head that takes a share of the weights and has no value
// Item b has lengths[b] + 1 keys with the new ones. Where `total` is S nothing came before: item b has S new keys of which
// the last may be padding. Outputs [B, S, heads * E] and, if asked for, present_key and present_value, with max(total, P)
// rows of which those behind an item's are 0; they may be the memory of the pasts. Attributes: heads, kv_heads, scale
// (1 / sqrt(D) by default), softcap, window (keys that a query sees, 0: all), interleaved, outputs, and evicts: pasts and
// presents have P rows, the window's or more, and of an item's keys hold the last L, the oldest first: all of up to P, and
// as many less as leave at most P where rows go P - window + 1 at a time.
class CachedAttentionOp {
 public:
  static constexpr const char* kName = "CachedAttention";
  static constexpr Input kInputs[] = {{ElementType::kFloat},
                                      {ElementType::kInt32},
                                      {ElementType::kInt32},
                                      {ElementType::kUndefined, kOptional},
                                      {ElementType::kUndefined, kOptional},
                                      {ElementType::kUndefined, kOptional},
                                      {ElementType::kUndefined, kOptional},
                                      {ElementType::kUndefined, kOptional},
                                      {ElementType::kUndefined, kOptional},
                                      {ElementType::kUndefined, kOptional},
                                      {ElementType::kUndefined, kOptional},
                                      {ElementType::kUndefined, kOptional}};
  static constexpr std::size_t kOutputs = 3;
  static constexpr bool kManyOutputs = false, kOptionalOutputs = true;

  explicit CachedAttentionOp(const Node& node);
  void run(Call& call) const;
  static void infer(const Inference& inference);

 private:
  // Keys and values of all rows, [batch][kv_heads][rows][depth].
  struct Cache {
    float *keys, *values;
    std::size_t rows;
  };
  void read_given(const Node& node);
  void append(const CachedAttentionProblem& p, const Cache& cache, int threads) const;
  void turn(const CachedAttentionProblem& p, const float* x, std::size_t width, std::size_t heads, const AttentionInputs::Steps& to,
            std::size_t to_row, float* out, int threads) const;
  void attend(const CachedAttentionProblem& p, const Cache& cache, const float* q, std::size_t q_width, float* out, int threads) const;

  CachedAttentionForm form_;
  float scale_, softcap_;
  bool interleaved_;
};

}  // namespace octavo::ort
