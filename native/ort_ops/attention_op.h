// ai.octavo.Attention: softmax(softcap(scale Q K^T) + bias) V for every head.
#pragma once

#include <vector>

#include "layers/attention.h"
#include "ort_ops/attention_layout.h"
#include "ort_ops/attention_rows.h"
#include "ort_ops/operator.h"

namespace octavo::ort {

// Inputs Q, K and V, and those that the attribute `given` names: "bias" (float32), "mask" (bool: which keys count) and
// "sinks" (float32 [heads]: scores without a value), by default the bias where there is a fourth. K and V may have fewer heads than Q: head h reads head h / (heads / kv_heads).
// The products [..., heads, S, T], bias and mask broadcast with each other, so that a batch, a head or a query of 1 is
// repeated where others have more; with the attribute `fits` such a run is refused. Attributes:
//   heads: of Q, where anything lies as rows; groups: how many of them each head of K and V is for (1 by default)
//   layouts: of Q, K, V and the output (rows by default)
//   shape: what an output that lies as rows is made of: 0 is the size there, -1 what is left, -2 the size of Q there
//   scale (1 / sqrt(D) by default), softcap, window
//   bfloat16: 1, products are bfloat16 where there are more than a few queries
//   causal: 1, the first query sees the first key; 2, the last query sees the last key
//   hidden: what a query gives of which mask, causality and window hide every key: 0 by default, with 1 what it gives where
//     `fill` (the lowest number by default) is the score of hidden keys; the bias is added to it, unless `replaces` is 1
//   joined_bias: the bias is [batch * heads, S, T]
//   guard: 1, weights that are NaN are 0; 2, those of a query whose every key is hidden or has a bias of -inf or the lowest
//     number
class AttentionOp {
 public:
  static constexpr const char* kName = "Attention";
  static constexpr Input kInputs[] = {{ElementType::kFloat},
                                      {ElementType::kFloat},
                                      {ElementType::kFloat},
                                      {ElementType::kUndefined, kOptional},
                                      {ElementType::kUndefined, kOptional},
                                      {ElementType::kUndefined, kOptional}};
  static constexpr std::size_t kOutputs = 1;
  static constexpr bool kManyOutputs = false, kOptionalOutputs = false;

  explicit AttentionOp(const Node& node);
  void run(Call& call) const;
  static void infer(const Inference& inference);

 private:
  struct Problem;
  Problem problem(const Call& call) const;
  float* output(const Call& call, const Problem& p) const;
  void run_each(Call& call, const Problem& p, AttentionInputs in) const;

  std::size_t heads_;
  float scale_, softcap_;
  Fill fill_;
  std::vector<std::int64_t> shape_;
  HeadLayouts layouts_;
  std::size_t groups_;
  std::int64_t causal_, guard_;
  std::size_t window_, bias_at_ = 0, mask_at_ = 0, sinks_at_ = 0;  // inputs; 0: none
  bool filled_, fits_, joined_bias_, bfloat16_;
};

}  // namespace octavo::ort
