#include "ort_ops/attention_layout.h"

#include <algorithm>
#include <string>

namespace octavo::ort {

namespace {

constexpr std::size_t kInner = 3;  // axes of the matrices of all heads

}  // namespace

HeadLayouts layouts_of(const std::vector<std::int64_t>& wanted) {
  HeadLayouts found{};
  for (std::size_t i = 0; i < found.size() && i < wanted.size(); ++i) found[i] = static_cast<HeadLayout>(wanted[i]);
  return found;
}

Shape HeadMatrices::lead() const {
  Shape lead = shape;
  lead.rank -= kInner;
  return lead;
}

std::size_t HeadMatrices::lead_step(const Shape& all, std::size_t axis) const {
  const std::size_t own = shape.rank - kInner, missing = all.rank - own;
  return axis < missing ? 0 : steps[axis - missing];
}

HeadMatrices head_matrices(const Tensor<float>& x, HeadLayout layout, std::size_t heads, const char* name) {
  HeadMatrices found;
  found.data = x.data;
  if (layout == HeadLayout::kOutside) {
    if (x.shape.rank < 2) throw Error(std::string(name) + " has shape " + x.shape.text() + "; it has to have two dimensions or more");
    found.rank = x.shape.rank;
    found.shape = broadcast(x.shape, name, {1, 1, 1}, name);
    found.steps = strides_in(x.shape, found.shape);
    return found;
  }
  Shape inside = x.shape;
  if (layout == HeadLayout::kRows) {
    const auto h = static_cast<std::int64_t>(heads);
    if (x.shape.rank != 3 || h == 0 || x.shape[2] % h != 0)
      throw Error(std::string(name) + " has shape " + x.shape.text() + "; it has to be [batch, length, a multiple of " +
                  std::to_string(h) + " heads]");
    inside = {x.shape[0], x.shape[1], h, x.shape[2] / h};
  } else if (x.shape.rank != 4) {
    throw Error(std::string(name) + " has shape " + x.shape.text() + "; it has to be [batch, length, heads, depth]");
  }
  const Strides steps = strides_in(inside, inside);
  found.rank = 4;
  found.shape = {inside[0], inside[2], inside[1], inside[3]};
  found.steps = {steps[0], steps[2], steps[1], steps[3]};
  return found;
}

Inference::Dims inferred_matrices(const Inference::Dims& x, HeadLayout layout, std::int64_t heads) {
  if (layout == HeadLayout::kOutside) return x;
  if (layout == HeadLayout::kInside) return x.size() == 4 ? Inference::Dims{x[0], x[2], x[1], x[3]} : Inference::Dims{};
  if (x.size() != 3) return {};
  Inference::Dim depth;
  if (heads > 0 && x[2].value >= 0) depth = Inference::known(x[2].value / heads);
  return {x[0], heads > 0 ? Inference::known(heads) : Inference::Dim{}, x[1], depth};
}

}  // namespace octavo::ort
