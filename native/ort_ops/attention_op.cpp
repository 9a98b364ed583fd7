#include "attention_op.h"

#include <algorithm>
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

// The batch of all inputs: theirs, or 1.
void widen(std::size_t& batch, std::int64_t size, const char* name) {
  const auto found = static_cast<std::size_t>(size);
  if (found == batch || found == 1) return;
  if (batch != 1)
    throw Error(std::string(name) + " has a batch of " + std::to_string(found) + ", other inputs " + std::to_string(batch) +
                "; they have to be the same, or 1");
  batch = found;
}

// From one batch item to the next; 0 where there is one for all.
std::size_t stride(const Tensor<float>& x) { return x.shape[0] == 1 ? 0 : x.shape.elements() / static_cast<std::size_t>(std::max<std::int64_t>(1, x.shape[0])); }

}  // namespace

AttentionOp::AttentionOp(const Node& node)
    : heads_(node.size("heads")), scale_(node.number("scale", 0.0f)) {
  if (!std::isfinite(scale_)) node.fail("the attribute scale is not finite");
}

void AttentionOp::run(Call& call) const {
  const Tensor<float> q = projection(call, 0, "Q", heads_), k = projection(call, 1, "K", heads_),
                      v = projection(call, 2, "V", heads_);
  expect_equal(q, "Q", k, "K", 2);
  expect_equal(k, "K", v, "V", 1);
  Tensor<float> bias;
  if (call.given(3)) bias = call.input<float>(3, "bias");
  AttentionInputs in{};
  in.batch = 1;
  widen(in.batch, q.shape[0], "Q");
  widen(in.batch, k.shape[0], "K");
  widen(in.batch, v.shape[0], "V");
  if (bias && bias.shape.rank == 4) widen(in.batch, bias.shape[0], "bias");
  in.heads = heads_;
  in.queries = static_cast<std::size_t>(q.shape[1]);
  in.keys = static_cast<std::size_t>(k.shape[1]);
  in.depth = static_cast<std::size_t>(q.shape[2]) / heads_;
  in.value_depth = static_cast<std::size_t>(v.shape[2]) / heads_;
  in.q_batch = stride(q);
  in.k_batch = stride(k);
  in.v_batch = stride(v);
  in.q = q.data;
  in.k = k.data;
  in.v = v.data;
  in.scale = scale_ != 0.0f ? scale_ : 1.0f / std::sqrt(static_cast<float>(std::max<std::size_t>(1, in.depth)));
  if (bias) {
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
  in.out = call.output(0, {static_cast<std::int64_t>(in.batch), q.shape[1], v.shape[2]});
  attention(in, call.threads());
}

void AttentionOp::infer(const Inference& inference) {
  const Inference::Dims q = inference.input(0), v = inference.input(2);
  if (q.size() != 3 || v.size() != 3) return;
  // A batch of 1 may grow with K, V or bias.
  const bool known = q[0].value != 1 && (q[0].value > 1 || (q[0].symbol == v[0].symbol && !q[0].symbol.empty()));
  inference.output(0, {known ? q[0] : Inference::Dim{}, q[1], v[2]});
}

}  // namespace octavo::ort
