// ai.octavo.CachedAttention: causal attention of new rows to a cache and themselves, in float32, with rotary positions.
#pragma once

#include <string>
#include <vector>

#include "layers/attention.h"
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
// (1 / sqrt(D) by default), softcap, window (keys that a query sees, 0: all), interleaved, outputs.
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
  struct Problem;
  Problem problem(const Call& call) const;
  void read_past(const Call& call, Problem& p) const;
  void read_lengths(const Call& call, Problem& p) const;
  void read_rotary(const Call& call, Problem& p) const;
  void read_added(const Call& call, Problem& p) const;
  void turn(const Problem& p, const float* x, std::size_t batch_step, std::size_t heads, float* out, bool as_rows, int threads) const;
  void attend(const Problem& p, const float* q, const AttentionInputs::Steps& q_steps, float* out, int threads) const;

  std::size_t heads_, kv_heads_;
  float scale_, softcap_;
  std::size_t window_;
  bool interleaved_;
  // Where inputs are; 0: not given.
  std::size_t key_ = 0, value_ = 0, past_key_ = 0, past_value_ = 0, cos_ = 0, sin_ = 0, positions_ = 0, bias_ = 0, sinks_ = 0;
};

}  // namespace octavo::ort
