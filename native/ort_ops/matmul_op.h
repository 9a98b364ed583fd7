// ai.octavo.MatMul: the product of two activations, which are both quantized as they come.
#pragma once

#include "ort_ops/operator.h"

namespace octavo::ort {

// Inputs A [..., M, K] and B [..., K, N], or with the attribute transpose_b B [..., N, K]; leading
// dimensions broadcast. Rows of A are quantized as Linear's, columns of B (matmul.h) with one scale each.
class MatMulOp {
 public:
  static constexpr const char* kName = "MatMul";
  static constexpr Input kInputs[] = {{ElementType::kFloat}, {ElementType::kFloat}};
  static constexpr std::size_t kOutputs = 1;
  static constexpr bool kManyOutputs = false, kOptionalOutputs = false;

  explicit MatMulOp(const Node& node);
  void run(Call& call) const;
  static void infer(const Inference& inference);

 private:
  bool transposed_;
};

}  // namespace octavo::ort
