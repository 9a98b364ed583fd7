#include "ort_ops/rotary_op.h"

#include "layers/rotary.h"

namespace octavo::ort {
namespace {

Tensor<float> table(const Call& call, std::size_t index, const char* name, const Shape& x, std::int64_t turned) {
  const Tensor<float> found = call.input<float>(index, name);
  const Shape& s = found.shape;
  if (s.rank != 4 || (s[0] != 1 && s[0] != x[0]) || s[1] != 1 || s[2] != x[2] || s[3] != turned)
    throw Error(std::string(name) + " has shape " + s.text() + " and X " + x.text() + "; it has to be [batch or 1, 1, " +
                std::to_string(x[2]) + ", " + std::to_string(turned) + "]");
  return found;
}

}  // namespace

RotaryOp::RotaryOp(const Node& node) : turned_(node.integer("turned", 0)), interleaved_(node.integer("interleaved", 0) != 0) {
  if (turned_ < 0 || turned_ % 2 != 0) node.fail("the attribute turned is " + std::to_string(turned_) + "; it has to be even, and 0 or more");
}

void RotaryOp::run(Call& call) const {
  const Tensor<float> x = call.input<float>(0, "X");
  const std::int64_t turned = turned_ == 0 && x.shape.rank == 4 ? x.shape[3] : turned_;
  if (x.shape.rank != 4 || turned % 2 != 0 || turned > x.shape[3])
    throw Error("X has shape " + x.shape.text() + "; it has to be [batch, heads, length, " +
                (turned_ == 0 ? "an even number]" : std::to_string(turned_) + " or more]"));
  const Tensor<float> cos = table(call, 1, "cos", x.shape, turned), sin = table(call, 2, "sin", x.shape, turned);
  if (cos.shape != sin.shape) throw Error("cos has shape " + cos.shape.text() + " and sin " + sin.shape.text() + "; they have to be the same");
  RotaryInputs in{};
  in.batch = static_cast<std::size_t>(x.shape[0]);
  in.heads = static_cast<std::size_t>(x.shape[1]);
  in.rows = static_cast<std::size_t>(x.shape[2]);
  in.width = static_cast<std::size_t>(x.shape[3]);
  in.turned = static_cast<std::size_t>(turned);
  in.interleaved = interleaved_;
  in.each = true;
  in.x_steps = in.out_steps = {in.heads * in.rows * in.width, in.rows * in.width, in.width};
  in.x = x.data;
  in.cos = cos.data;
  in.sin = sin.data;
  in.table_batch = cos.shape[0] == 1 ? 0 : in.rows * in.turned;
  in.table_row = in.turned;
  in.out = call.output(0, x.shape);
  rotary(in, call.threads());
}

void RotaryOp::infer(const Inference& inference) {
  const Inference::Dims x = inference.input(0);
  if (!x.empty()) inference.output(0, x);
}

}  // namespace octavo::ort
