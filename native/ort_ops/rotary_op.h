// ai.octavo.Rotary: rotary positions of the rows of every head, by halves or neighbours.
#pragma once

#include "layers/rotary.h"
#include "ort_ops/operator.h"

namespace octavo::ort {

// Inputs X [B, heads, S, D], or rows [B, S, heads * D]; cos and sin, which turn the first R elements of a head's row:
//   [B or 1, 1, S, R]     a number for each element
//   [B or 1, S, R / 2]    a number for each pair
//   [positions, R / 2]    the same, of the rows that the input positions says: int64 [B, S], or [1], where the first row is
// Attributes: turned (R, even; 0: D), interleaved (neighbours are turned, not halves of R), heads (of rows; 0: D is R).
class RotaryOp {
 public:
  static constexpr const char* kName = "Rotary";
  static constexpr Input kInputs[] = {
      {ElementType::kFloat}, {ElementType::kFloat}, {ElementType::kFloat}, {ElementType::kUndefined, kOptional}};
  static constexpr std::size_t kOutputs = 1;
  static constexpr bool kManyOutputs = false, kOptionalOutputs = false;

  explicit RotaryOp(const Node& node);
  void run(Call& call) const;
  static void infer(const Inference& inference);

 private:
  void read_sizes(const Shape& x, std::int64_t pairs, RotaryInputs& in) const;

  std::int64_t turned_, heads_;
  bool interleaved_;
};

}  // namespace octavo::ort
