// ai.octavo.Linear and ai.octavo.GroupedLinear: y = activation(x W^T + B) + residual with x [..., K]
// quantized row by row (or group by group) as it comes.
#pragma once

#include <vector>

#include "layers/linear.h"
#include "ort_ops/operator.h"

namespace octavo::ort {

// Inputs X [..., K], W int8 [ceil(N/16), ceil(K/4), 16, 4] packed, W_scale [N], W_zero_point int8 [N],
// B [N], and residual, of any shape that broadcasts with [..., N]. Attributes N, K, group_size (0: one
// scale a row; 128), activation, checksum.
class LinearOp {
 public:
  static constexpr const char* kName = "Linear";
  static constexpr Input kInputs[] = {{ElementType::kFloat}, {ElementType::kInt8}, {ElementType::kFloat},
                                      {ElementType::kInt8},  {ElementType::kFloat}, {ElementType::kFloat, kOptional}};
  static constexpr std::size_t kOutputs = 1;
  static constexpr bool kManyOutputs = false, kOptionalOutputs = false;

  explicit LinearOp(const Node& node);
  void run(Call& call) const;
  static void infer(const Inference& inference);

 private:
  void run_apart(Call& call, const Rows& rows, const Shape& shape, const Tensor<float>& residual) const;

  Buffer copy_;
  std::vector<Linear> layer_;  // one
};

// Several layers over one input, which is quantized once (Q, K and V). Inputs X, then W, W_scale,
// W_zero_point and B of each. The attributes N and checksum list a number for each, activation a word
// for each (or one for all); there are as many outputs.
class GroupedLinearOp {
 public:
  static constexpr const char* kName = "GroupedLinear";
  static constexpr Input kInputs[] = {{ElementType::kFloat}, {ElementType::kUndefined, kVariadic}};
  static constexpr std::size_t kOutputs = 1;
  static constexpr bool kManyOutputs = true, kOptionalOutputs = false;

  explicit GroupedLinearOp(const Node& node);
  void run(Call& call) const;
  static void infer(const Inference& inference);

 private:
  std::vector<Buffer> copies_;
  std::vector<Linear> layers_;
};

}  // namespace octavo::ort
