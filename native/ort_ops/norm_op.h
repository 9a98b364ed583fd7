// ai.octavo.Norm: rows of X [..., N] to variance 1, and to mean 0 where they are layers', then times weight plus bias.
#pragma once

#include "contract/kernels.h"
#include "ort_ops/operator.h"

namespace octavo::ort {

// Inputs X [..., N], weight [N] and bias [N]. Attributes kind ("layer", or "rms": the mean stays) and epsilon.
class NormOp {
 public:
  static constexpr const char* kName = "Norm";
  static constexpr Input kInputs[] = {{ElementType::kFloat}, {ElementType::kFloat}, {ElementType::kFloat, kOptional}};
  static constexpr std::size_t kOutputs = 1;
  static constexpr bool kManyOutputs = false, kOptionalOutputs = false;

  explicit NormOp(const Node& node);
  void run(Call& call) const;
  static void infer(const Inference& inference);

 private:
  Norm kind_;
  float epsilon_;
};

}  // namespace octavo::ort
