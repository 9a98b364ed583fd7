// ai.octavo.Rotary: rotary positions of X [B, heads, S, D], by halves of each row.
#pragma once

#include "ort_ops/operator.h"

namespace octavo::ort {

// Inputs X [B, heads, S, D], cos and sin [B or 1, 1, S, D]; D is even.
class RotaryOp {
 public:
  static constexpr const char* kName = "Rotary";
  static constexpr Input kInputs[] = {{ElementType::kFloat}, {ElementType::kFloat}, {ElementType::kFloat}};
  static constexpr std::size_t kOutputs = 1;
  static constexpr bool kManyOutputs = false, kOptionalOutputs = false;

  explicit RotaryOp(const Node&) {}
  void run(Call& call) const;
  static void infer(const Inference& inference);
};

}  // namespace octavo::ort
