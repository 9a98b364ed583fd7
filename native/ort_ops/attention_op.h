// ai.octavo.Attention: softmax(scale Q K^T + bias) V, in float32, for every head.
#pragma once

#include "attention.h"
#include "operator.h"

namespace octavo::ort {

// Inputs Q [B, S, heads * D], K [B, T, heads * D], V [B, T, heads * E], and bias, which broadcasts to
// [B, heads, S, T]. A batch of 1 is repeated for the others'. Output [B, S, heads * E]. Attributes heads,
// scale (1 / sqrt(D) by default).
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
};

}  // namespace octavo::ort
