// ai.octavo.Attention: softmax(scale Q K^T + bias) V, in float32, for every head.
#pragma once

#include <vector>

#include "layers/attention.h"
#include "ort_ops/operator.h"

namespace octavo::ort {

// Inputs Q [B, S, heads * D], K [B, T, heads * D], V [B, T, heads * E], and bias. The products
// [B, heads, S, T] and the bias broadcast with each other, so that a batch, a head or a query of 1 is
// repeated where others have more. What comes of it is [B, S, heads * E] with the larger sizes, and the
// output holds it in the attribute `shape`: 0 is the size there, -1 what is left, -2 the size of Q there;
// [0, 0, -1] by default. Other attributes: heads, scale (1 / sqrt(D) by default).
class AttentionOp {
 public:
  static constexpr const char* kName = "Attention";
  static constexpr Input kInputs[] = {{ElementType::kFloat}, {ElementType::kFloat}, {ElementType::kFloat},
                                      {ElementType::kFloat, kOptional}};
  static constexpr std::size_t kOutputs = 1;
  static constexpr bool kManyOutputs = false, kOptionalOutputs = false;

  explicit AttentionOp(const Node& node);
  void run(Call& call) const;
  static void infer(const Inference& inference);

 private:
  std::size_t heads_;
  float scale_;
  std::vector<std::int64_t> shape_;
};

}  // namespace octavo::ort
