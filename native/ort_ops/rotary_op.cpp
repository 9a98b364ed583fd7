#include "ort_ops/rotary_op.h"

#include "layers/rotary.h"

namespace octavo::ort {
namespace {

Tensor<float> table(const Call& call, std::size_t index, const char* name, const Shape& x) {
  const Tensor<float> found = call.input<float>(index, name);
  const Shape& s = found.shape;
  if (s.rank != 4 || (s[0] != 1 && s[0] != x[0]) || s[1] != 1 || s[2] != x[2] || s[3] != x[3])
    throw Error(std::string(name) + " has shape " + s.text() + " and X " + x.text() + "; it has to be [batch or 1, 1, " +
                std::to_string(x[2]) + ", " + std::to_string(x[3]) + "]");
  return found;
}

}  // namespace

void RotaryOp::run(Call& call) const {
  const Tensor<float> x = call.input<float>(0, "X");
  if (x.shape.rank != 4 || x.shape[3] % 2 != 0)
    throw Error("X has shape " + x.shape.text() + "; it has to be [batch, heads, length, an even number]");
  const Tensor<float> cos = table(call, 1, "cos", x.shape), sin = table(call, 2, "sin", x.shape);
  if (cos.shape != sin.shape) throw Error("cos has shape " + cos.shape.text() + " and sin " + sin.shape.text() + "; they have to be the same");
  RotaryInputs in{};
  in.batch = static_cast<std::size_t>(x.shape[0]);
  in.heads = static_cast<std::size_t>(x.shape[1]);
  in.rows = static_cast<std::size_t>(x.shape[2]);
  in.width = in.turned = static_cast<std::size_t>(x.shape[3]);
  in.each = true;
  in.x_steps = in.out_steps = {in.heads * in.rows * in.width, in.rows * in.width, in.width};
  in.x = x.data;
  in.cos = cos.data;
  in.sin = sin.data;
  in.table_batch = cos.shape[0] == 1 ? 0 : in.rows * in.width;
  in.table_row = in.width;
  in.out = call.output(0, x.shape);
  rotary(in, call.threads());
}

void RotaryOp::infer(const Inference& inference) {
  const Inference::Dims x = inference.input(0);
  if (!x.empty()) inference.output(0, x);
}

}  // namespace octavo::ort
