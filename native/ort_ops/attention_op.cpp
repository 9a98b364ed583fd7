#include "ort_ops/attention_op.h"

#include <algorithm>
#include <cmath>

#include "ort_ops/broadcast.h"

namespace octavo::ort {
namespace {

constexpr std::int64_t kAsItIs = 0, kRest = -1, kSizeOfQ = -2;  // in the attribute `shape`

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

// The batch of Q, K and V: theirs, or 1.
void widen(std::int64_t& batch, std::int64_t size, const char* name) {
  if (size == batch || size == 1) return;
  if (batch != 1)
    throw Error(std::string(name) + " has a batch of " + std::to_string(size) + ", other inputs " + std::to_string(batch) +
                "; they have to be the same, or 1");
  batch = size;
}

// Steps through [batch, rows, heads * depth], of which each may be one for all.
AttentionInputs::Steps steps_of(const Tensor<float>& x, std::size_t heads) {
  const auto width = static_cast<std::size_t>(x.shape[2]);
  return {x.shape[0] == 1 ? 0 : static_cast<std::size_t>(x.shape[1]) * width, width, heads == 1 ? 0 : width / heads};
}

// What the attribute `shape` makes of [B, S, heads * E], where Q has its shape.
Shape shape_of(const std::vector<std::int64_t>& wanted, const Shape& whole, const Shape& q) {
  Shape shape = whole;
  std::int64_t known = 1;
  for (std::size_t i = 0; i < whole.rank; ++i) {
    if (wanted[i] != kAsItIs) shape[i] = wanted[i] == kSizeOfQ ? q[i] : wanted[i];
    if (wanted[i] != kRest) known *= shape[i];
  }
  const auto elements = static_cast<std::int64_t>(whole.elements());
  for (std::size_t i = 0; i < whole.rank; ++i)
    if (wanted[i] == kRest) shape[i] = known > 0 ? elements / known : whole[i];
  if (static_cast<std::int64_t>(shape.elements()) != elements)
    throw Error("the bias or the batch of K and V make the output " + whole.text() + ", and the attribute shape asks for " +
                shape.text() + "; give a bias that is no larger than the products of Q and K");
  return shape;
}

}  // namespace

AttentionOp::AttentionOp(const Node& node)
    : heads_(node.size("heads")), scale_(node.number("scale", 0.0f)), shape_(node.integers("shape", {kAsItIs, kAsItIs, kRest})) {
  if (!std::isfinite(scale_)) node.fail("the attribute scale is not finite");
  const auto most_rests = std::count(shape_.begin(), shape_.end(), kRest);
  if (shape_.size() != 3 || most_rests > 1 || *std::min_element(shape_.begin(), shape_.end()) < kSizeOfQ)
    node.fail("the attribute shape has to be three sizes: 0, -2, above 0, or once -1");
}

void AttentionOp::run(Call& call) const {
  const Tensor<float> q = projection(call, 0, "Q", heads_), k = projection(call, 1, "K", heads_),
                      v = projection(call, 2, "V", heads_);
  expect_equal(q, "Q", k, "K", 2);
  expect_equal(k, "K", v, "V", 1);
  Shape scores{1, static_cast<std::int64_t>(heads_), q.shape[1], k.shape[1]};
  widen(scores[0], q.shape[0], "Q");
  widen(scores[0], k.shape[0], "K");
  widen(scores[0], v.shape[0], "V");
  AttentionInputs in{};
  if (call.given(3)) {
    const Tensor<float> bias = call.input<float>(3, "bias");
    if (bias.shape.rank > 4) throw Error("bias has shape " + bias.shape.text() + "; it has at most 4 dimensions");
    scores = broadcast(scores, "the product", bias.shape, "bias");
    if (scores[3] != k.shape[1])
      throw Error("bias has shape " + bias.shape.text() + " for " + std::to_string(k.shape[1]) + " keys; its last dimension has to be that, or 1");
    const Strides strides = strides_in(bias.shape, scores);
    in.bias_batch = strides[0];
    in.bias_head = strides[1];
    in.bias_query = strides[2];
    in.bias_key = strides[3];
    in.bias = bias.data;
  }
  in.batch = static_cast<std::size_t>(scores[0]);
  in.heads = in.kv_heads = static_cast<std::size_t>(scores[1]);
  in.queries = static_cast<std::size_t>(scores[2]);
  in.keys = static_cast<std::size_t>(scores[3]);
  in.depth = static_cast<std::size_t>(q.shape[2]) / heads_;
  in.value_depth = static_cast<std::size_t>(v.shape[2]) / heads_;
  in.q = q.data;
  in.k = k.data;
  in.v = v.data;
  in.q_steps = steps_of(q, heads_);
  if (q.shape[1] == 1) in.q_steps.row = 0;
  in.k_steps = steps_of(k, heads_);
  in.v_steps = steps_of(v, heads_);
  in.scale = scale_ != 0.0f ? scale_ : 1.0f / std::sqrt(static_cast<float>(std::max<std::size_t>(1, in.depth)));
  const Shape whole{scores[0], scores[2], scores[1] * static_cast<std::int64_t>(in.value_depth)};
  const std::size_t width = in.heads * in.value_depth;
  in.out_steps = {in.queries * width, width, in.value_depth};
  in.out = call.output(0, shape_of(shape_, whole, q.shape));
  attention(in, call.threads());
}

void AttentionOp::infer(const Inference& inference) {
  using Dims = Inference::Dims;
  const Dims q = inference.input(0), k = inference.input(1), v = inference.input(2);
  if (q.size() != 3 || k.size() != 3 || v.size() != 3) return;
  const std::int64_t heads = inference.integer("heads", 1);
  Dims products{broadcast(broadcast({q[0]}, {k[0]}), {v[0]})[0], Inference::known(heads), q[1], k[1]};
  if (inference.inputs() > 3) {
    Dims bias = inference.input(3);
    if (bias.empty()) bias.resize(4);  // of which nothing is known
    if (bias.size() > 4) return;
    products = broadcast(products, bias);
  }
  const std::int64_t all_heads = products[1].value;
  Dims whole{products[0], products[2], {}};
  if (all_heads == heads) whole[2] = v[2];
  else if (all_heads > 0 && v[2].value >= 0) whole[2] = Inference::known(v[2].value / heads * all_heads);
  std::vector<std::int64_t> wanted = inference.integers("shape");
  if (wanted.size() != 3) wanted = {kAsItIs, kAsItIs, kRest};
  Dims found = whole;
  bool unchanged = true;  // but for the size that is left
  for (std::size_t i = 0; i < 3; ++i) {
    if (wanted[i] == kSizeOfQ) found[i] = q[i];
    if (wanted[i] > 0) found[i] = Inference::known(wanted[i]);
    if (wanted[i] != kRest && wanted[i] != kAsItIs) unchanged &= same_size(found[i], whole[i]);
  }
  for (std::size_t i = 0; i < 3; ++i)
    if (wanted[i] == kRest && !unchanged) found[i] = {};
  inference.output(0, found);
}

}  // namespace octavo::ort
