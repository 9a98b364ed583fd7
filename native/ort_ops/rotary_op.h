// ai.octavo.Rotary: rotary positions of X [B, heads, S, D], by halves or neighbours of each row.
#pragma once

#include "ort_ops/operator.h"

namespace octavo::ort {

// Inputs X [B, heads, S, D], cos and sin [B or 1, 1, S, R]. Attributes turned (R, even; 0: D), and interleaved: neighbours
// are turned, not halves of R.
class RotaryOp {
 public:
  static constexpr const char* kName = "Rotary";
  static constexpr Input kInputs[] = {{ElementType::kFloat}, {ElementType::kFloat}, {ElementType::kFloat}};
  static constexpr std::size_t kOutputs = 1;
  static constexpr bool kManyOutputs = false, kOptionalOutputs = false;

  explicit RotaryOp(const Node& node);
  void run(Call& call) const;
  static void infer(const Inference& inference);

 private:
  std::int64_t turned_;
  bool interleaved_;
};

}  // namespace octavo::ort
