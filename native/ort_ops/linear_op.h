// ai.octavo.Linear, GroupedLinear and GatedLinear: y = activation(x W^T + B) + residual with x [..., K]
// quantized row by row (or group by group) as it comes.
#pragma once

#include <vector>

#include "layers/linear.h"
#include "ort_ops/operator.h"

namespace octavo::ort {

// Inputs X [..., K], W int8 [ceil(N/16), ceil(K/4), 16, 4] packed, W_scale [N], W_zero_point int8 [N],
// B [N], and residual, of any shape that broadcasts with [..., N]. Attributes N, K, group_size (0: one
// scale a row; 128), activation, checksum. With an attribute weight_format other than int8, W are the bytes of a
// weight in groups, and group_size is 0 or their length.
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

// The layers that a node lists: inputs X, then W, W_scale, W_zero_point and B of each. The attributes N and
// checksum hold a number for each, activation a word for each (or one for all).
class LayersOfNode {
 public:
  explicit LayersOfNode(const Node& node);

  const std::vector<Linear>& all() const { return layers_; }
  std::size_t inputs() const { return layers_[0].weight.k; }

 private:
  std::vector<Buffer> copies_;
  std::vector<Linear> layers_;
};

// Several layers over one input, which is quantized once (Q, K and V). There are as many outputs.
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
  LayersOfNode layers_;
};

// Two layers of as many outputs over one input, whose outputs are multiplied with each other.
class GatedLinearOp {
 public:
  static constexpr const char* kName = "GatedLinear";
  static constexpr Input kInputs[] = {{ElementType::kFloat}, {ElementType::kUndefined, kVariadic}};
  static constexpr std::size_t kOutputs = 1;
  static constexpr bool kManyOutputs = false, kOptionalOutputs = false;

  explicit GatedLinearOp(const Node& node);
  void run(Call& call) const;
  static void infer(const Inference& inference);

 private:
  LayersOfNode layers_;
};

}  // namespace octavo::ort
