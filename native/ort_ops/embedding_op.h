// ai.octavo.Embedding: rows of an integer table, which are float32 on their way out.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/embedding.h"
#include "ort_ops/operator.h"

namespace octavo::ort {

// Inputs: indices of any shape, int32 or int64 (negative ones count from the end), W int8 [V, D], W_scale
// [V], W_zero_point int8 [V]; output [indices..., shape...]. Attributes V, D, shape (the dimensions that D
// values have; by default [D]), checksum, and packed: 1 where W is [ceil(V/16), ceil(D/4), 16, 4] as
// Linear's, whose weight it may be too; in a weight_format of groups always.
class EmbeddingOp {
 public:
  static constexpr const char* kName = "Embedding";
  static constexpr Input kInputs[] = {{ElementType::kUndefined}, {ElementType::kInt8}, {ElementType::kFloat}, {ElementType::kInt8}};
  static constexpr std::size_t kOutputs = 1;
  static constexpr bool kManyOutputs = false, kOptionalOutputs = false;

  explicit EmbeddingOp(const Node& node);
  void run(Call& call) const;
  static void infer(const Inference& inference);

 private:
  Buffer copy_;
  std::size_t rows_;
  bool packed_;
  WeightFormat format_;
  Shape row_;                       // of one row's values
  std::vector<std::int32_t> zeros_;
  EmbeddingTable table_;
};

}  // namespace octavo::ort
