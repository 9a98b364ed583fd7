#include "attention_op.h"

#include <cmath>

namespace octavo::ort {
namespace {

// What one of Q, K and V is, with its sizes checked.
Tensor<float> projection(const Call& call, std::size_t index, const char* name, std::size_t heads) {
  const Tensor<float> found = call.input<float>(index, name);
  if (found.shape.rank != 3 || found.shape[2] % static_cast<std::int64_t>(heads) != 0)
    throw Error(std::string(name) + " has shape " + found.shape.text() + "; it has to be [batch, length, a multiple of " +
                std::to_string(heads) + " heads]");
  return found;
}

void expect_equal(const Tensor<float>& a, const char* a_name, const Tensor<float>& b, const char* b_name, std::size_t axis) {
  if (a.shape[axis] != b.shape[axis])
    throw Error(std::string(a_name) + " has shape " + a.shape.text() + " and " + b_name + " " + b.shape.text() +
                "; dimension " + std::to_string(axis) + " has to be the same");
}

}  // namespace

AttentionOp::AttentionOp(const Node& node)
    : heads_(node.size("heads")), scale_(node.number("scale", 0.0f)), bias_(node.inputs() > 3) {
  if (!std::isfinite(scale_)) node.fail("the attribute scale is not finite");
}

void AttentionOp::run(Call& call) const {
  const Tensor<float> q = projection(call, 0, "Q", heads_), k = projection(call, 1, "K", heads_),
                      v = projection(call, 2, "V", heads_);
  expect_equal(q, "Q", k, "K", 0);
  expect_equal(q, "Q", v, "V", 0);
  expect_equal(q, "Q", k, "K", 2);
  expect_equal(k, "K", v, "V", 1);
  AttentionInputs in{};
  in.batch = static_cast<std::size_t>(q.shape[0]);
  in.heads = heads_;
  in.queries = static_cast<std::size_t>(q.shape[1]);
  in.keys = static_cast<std::size_t>(k.shape[1]);
  in.depth = static_cast<std::size_t>(q.shape[2]) / heads_;
  in.value_depth = static_cast<std::size_t>(v.shape[2]) / heads_;
  in.q = q.data;
  in.k = k.data;
  in.v = v.data;
  in.scale = scale_ != 0.0f ? scale_ : 1.0f / std::sqrt(static_cast<float>(std::max<std::size_t>(1, in.depth)));
  if (bias_) {
    const Tensor<float> bias = call.input<float>(3, "bias");
    const std::size_t sizes[] = {in.batch, in.heads, in.queries, in.keys};
    std::size_t* strides[] = {&in.bias_batch, &in.bias_head, &in.bias_query, &in.bias_key};
    if (bias.shape.rank > 4) throw Error("bias has shape " + bias.shape.text() + "; it has at most 4 dimensions");
    std::size_t step = 1;
    for (std::size_t i = 0; i < bias.shape.rank; ++i) {
      const auto size = static_cast<std::size_t>(bias.shape[bias.shape.rank - 1 - i]);
      if (size != 1 && size != sizes[3 - i])
        throw Error("bias has shape " + bias.shape.text() + ", which does not broadcast to [" + std::to_string(in.batch) + ", " +
                    std::to_string(in.heads) + ", " + std::to_string(in.queries) + ", " + std::to_string(in.keys) + "]");
      *strides[3 - i] = size == 1 ? 0 : step;
      step *= size;
    }
    in.bias = bias.data;
  }
  in.out = call.output(0, {q.shape[0], q.shape[1], v.shape[2]});
  attention(in, call.threads());
}

void AttentionOp::infer(const Inference& inference) {
  const Inference::Dims q = inference.input(0), v = inference.input(2);
  if (q.size() == 3 && v.size() == 3) inference.output(0, {q[0], q[1], v[2]});
}

}  // namespace octavo::ort
