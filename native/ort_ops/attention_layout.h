// How Q, K, V and the output of an attention lie, and what their axes are.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ort_ops/broadcast.h"
#include "ort_ops/kernel.h"
#include "ort_ops/tensor.h"

namespace octavo::ort {

// [B, L, heads * D], [B, L, heads, D] or [..., heads, L, D], of which axes that are missing have size 1.
enum class HeadLayout { kRows = 0, kInside = 1, kOutside = 2 };

// Those of Q, K, V and the output, as the attribute `layouts` lists them; rows where there is none.
using HeadLayouts = std::array<HeadLayout, 4>;
HeadLayouts layouts_of(const std::vector<std::int64_t>& wanted);

// One of Q, K and V as [lead..., heads, length, depth], with the step of each axis; 0 where it has size 1.
struct HeadMatrices {
  const float* data = nullptr;
  Shape shape;
  Strides steps{};
  std::size_t rank = 0;  // that the graph sees: 2 or more; 4 of rows

  std::int64_t heads() const { return shape[shape.rank - 3]; }
  std::int64_t length() const { return shape[shape.rank - 2]; }
  std::int64_t depth() const { return shape[shape.rank - 1]; }
  Shape lead() const;
  // Of axis `axis` of `all`, the leading axes of the whole attention.
  std::size_t lead_step(const Shape& all, std::size_t axis) const;
};

HeadMatrices head_matrices(const Tensor<float>& x, HeadLayout layout, std::size_t heads, const char* name);

// The same axes while shapes are inferred; empty where nothing is known.
Inference::Dims inferred_matrices(const Inference::Dims& x, HeadLayout layout, std::int64_t heads);

}  // namespace octavo::ort
