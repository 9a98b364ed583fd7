#include "ort_ops/norm_op.h"

#include <cmath>

#include "layers/norm.h"

namespace octavo::ort {
namespace {

Norm kind_of(const Node& node) {
  const std::string kind = node.text("kind", "layer");
  if (kind == "layer") return Norm::kLayer;
  if (kind == "rms") return Norm::kRms;
  node.fail("the kind '" + kind + "' is unknown; there are layer, rms");
}

// Of one number for each column of X.
const float* columns(const Call& call, std::size_t index, const char* name, const Shape& x) {
  const Tensor<float> found = call.input<float>(index, name);
  if (found.shape != Shape{x.last()})
    throw Error(std::string(name) + " has shape " + found.shape.text() + " and X " + x.text() + "; it has to be " +
                Shape{x.last()}.text());
  return found.data;
}

}  // namespace

NormOp::NormOp(const Node& node) : kind_(kind_of(node)), epsilon_(node.number("epsilon", 1e-5f)) {
  if (!std::isfinite(epsilon_) || epsilon_ < 0.0f)
    node.fail("the attribute epsilon is " + std::to_string(epsilon_) + "; it has to be finite and 0 or more");
}

void NormOp::run(Call& call) const {
  const Tensor<float> x = call.input<float>(0, "X");
  if (x.shape.rank == 0) throw Error("X has no dimensions; it has to be [..., N]");
  NormRows rows;
  rows.kind = kind_;
  rows.x = x.data;
  rows.rows = x.shape.product(x.shape.rank - 1);
  rows.columns = rows.stride = rows.out_stride = static_cast<std::size_t>(x.shape.last());
  rows.weight = columns(call, 1, "weight", x.shape);
  rows.bias = call.given(2) ? columns(call, 2, "bias", x.shape) : nullptr;
  rows.eps = epsilon_;
  rows.out = call.output(0, x.shape);
  norm(rows, call.threads());
}

void NormOp::infer(const Inference& inference) {
  const Inference::Dims x = inference.input(0);
  if (!x.empty()) inference.output(0, x);
}

}  // namespace octavo::ort
