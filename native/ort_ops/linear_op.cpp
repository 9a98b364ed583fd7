#include "ort_ops/linear_op.h"

#include <algorithm>
#include <sstream>

#include "ort_ops/broadcast.h"

namespace octavo::ort {
namespace {

// Of `count` layers: a word for each, or one for all.
std::vector<Activation> activations_of(const Node& node, std::size_t count) {
  std::istringstream words(node.text("activation", "none"));
  std::vector<Activation> found;
  for (std::string word; words >> word;) found.push_back(activation_of(node, word));
  if (found.size() == 1) found.resize(count, found[0]);
  if (found.size() != count)
    node.fail("the attribute activation holds " + std::to_string(found.size()) + " words for " + std::to_string(count) + " layers");
  return found;
}

// Inputs of X that share a scale: 0 for a row's, or as many as the weight's groups have (int8: 128).
std::size_t group_of(const Node& node, const WeightFormat& format) {
  const std::int64_t group = node.integer("group_size", 0);
  const auto length = static_cast<std::int64_t>(format.group ? format.group : kGroup);
  if (group != 0 && group != length)
    node.fail("group_size is " + std::to_string(group) + "; it is 0 (one scale a row) or " + std::to_string(length));
  return static_cast<std::size_t>(group);
}

// The layer whose weight and vectors are inputs first..first + 3.
Linear layer_of(const Node& node, std::size_t first, std::size_t n, std::int64_t checksum, Activation activation, Buffer& copy) {
  const std::size_t k = node.size("K");
  const Shape columns{static_cast<std::int64_t>(n)};
  const PackedData packed = node.packed_matrix(first, "W", n, k, checksum, copy);
  const float* scale = node.scales(first + 1, "W_scale", columns);
  const std::int8_t* zero = node.constant<std::int8_t>(first + 2, "W_zero_point", columns).data;
  const float* bias = node.constant<float>(first + 3, "B", columns).data;
  const std::vector<std::int32_t> zeros(zero, zero + n);
  const bool affine = std::any_of(zeros.begin(), zeros.end(), [](std::int32_t z) { return z != 0; });
  if (affine && packed.format.group) node.fail("W_zero_point holds other numbers than 0; weights in groups have theirs in W");
  return {packed, n, k, group_of(node, packed.format), scale, affine ? zeros.data() : nullptr, bias, activation};
}

// X as rows of k.
Rows rows_of(const Tensor<float>& x, std::size_t k) {
  if (x.shape.rank == 0 || x.shape.last() != static_cast<std::int64_t>(k))
    throw Error("X has shape " + x.shape.text() + "; its last dimension has to be " + std::to_string(k));
  return {x.data, DType::kFloat32, x.shape.product(x.shape.rank - 1), k, nullptr, nullptr};
}

Shape with_last(Shape shape, std::size_t n) {
  shape[shape.rank - 1] = static_cast<std::int64_t>(n);
  return shape;
}

// out = y + r over the shape that they broadcast to.
void add(const float* y, const Shape& ys, const float* r, const Shape& rs, float* out, const Shape& all) {
  const auto sy = strides_in(ys, all), sr = strides_in(rs, all);
  const std::size_t width = static_cast<std::size_t>(all.last()), rows = all.product(all.rank - 1);
  const std::size_t wy = sy[all.rank - 1], wr = sr[all.rank - 1];
  for (std::size_t row = 0; row < rows; ++row) {
    std::size_t rest = row, ay = 0, ar = 0;
    for (std::size_t i = all.rank - 1; i-- > 0;) {
      const auto d = static_cast<std::size_t>(all[i]);
      ay += rest % d * sy[i];
      ar += rest % d * sr[i];
      rest /= d;
    }
    float* to = out + row * width;
    for (std::size_t c = 0; c < width; ++c) to[c] = y[ay + c * wy] + r[ar + c * wr];
  }
}

Inference::Dims with_last(Inference::Dims dims, std::int64_t n) {
  dims.back() = Inference::known(n);
  return dims;
}

}  // namespace

LinearOp::LinearOp(const Node& node) {
  layer_.push_back(layer_of(node, 1, node.size("N"), node.integer("checksum"), activations_of(node, 1)[0], copy_));
}

void LinearOp::run(Call& call) const {
  const Tensor<float> x = call.input<float>(0, "X");
  const Linear& layer = layer_[0];
  const std::size_t n = layer.weight.n;
  const Rows rows = rows_of(x, layer.weight.k);
  const Shape shape = with_last(x.shape, n);
  Tensor<float> residual;
  if (call.given(5)) residual = call.input<float>(5, "residual");
  if (residual && residual.shape != shape) return run_apart(call, rows, shape, residual);
  const Output out{call.output(0, shape), DType::kFloat32, n, residual.data, n};
  const Linear* one = &layer;
  linear(&one, 1, rows, &out, call.threads());
}

// A residual of another shape: the layer's outputs first, then the sum.
void LinearOp::run_apart(Call& call, const Rows& rows, const Shape& shape, const Tensor<float>& residual) const {
  const Shape all = broadcast(shape, "the output", residual.shape, "the residual");
  float* to = call.output(0, all);
  if (all.elements() == 0) return;
  auto* y = reinterpret_cast<float*>(call.memory(shape.elements() * sizeof(float) + 1));
  const Output out{y, DType::kFloat32, layer_[0].weight.n, nullptr, 0};
  const Linear* one = &layer_[0];
  linear(&one, 1, rows, &out, call.threads());
  add(y, shape, residual.data, residual.shape, to, all);
}

void LinearOp::infer(const Inference& inference) {
  const Inference::Dims x = inference.input(0);
  const std::int64_t n = inference.integer("N", -1);
  if (x.empty() || n < 0) return;
  Inference::Dims y = with_last(x, n);
  if (inference.inputs() > 5) {
    const Inference::Dims residual = inference.input(5);
    if (residual.empty()) return;
    y = broadcast(y, residual);
  }
  inference.output(0, y);
}

LayersOfNode::LayersOfNode(const Node& node) {
  const std::vector<std::int64_t> outputs = node.integers("N", {}), checksums = node.integers("checksum", {});
  const std::size_t count = outputs.size();
  if (count == 0 || count != checksums.size() || node.inputs() != 1 + 4 * count)
    node.fail("the attributes N and checksum list " + std::to_string(count) + " and " + std::to_string(checksums.size()) +
              " layers; there are " + std::to_string(node.outputs()) + " outputs, and " + std::to_string(node.inputs()) +
              " inputs where four a layer and X are wanted");
  const std::vector<Activation> activations = activations_of(node, count);
  copies_.resize(count);
  layers_.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (outputs[i] < 1 || outputs[i] > INT32_MAX)
      node.fail("the attribute N holds " + std::to_string(outputs[i]) + ", not in 1.." + std::to_string(INT32_MAX));
    layers_.push_back(layer_of(node, 1 + 4 * i, static_cast<std::size_t>(outputs[i]), checksums[i], activations[i], copies_[i]));
  }
}

GroupedLinearOp::GroupedLinearOp(const Node& node) : layers_(node) {
  if (layers_.all().size() != node.outputs())
    node.fail("the attributes N and checksum list " + std::to_string(layers_.all().size()) + " layers; there are " +
              std::to_string(node.outputs()) + " outputs");
}

void GroupedLinearOp::run(Call& call) const {
  const Tensor<float> x = call.input<float>(0, "X");
  const Rows rows = rows_of(x, layers_.inputs());
  std::vector<const Linear*> layers;
  std::vector<Output> outs;
  for (const Linear& layer : layers_.all()) {
    const std::size_t n = layer.weight.n;
    outs.push_back({call.output(layers.size(), with_last(x.shape, n)), DType::kFloat32, n, nullptr, 0});
    layers.push_back(&layer);
  }
  linear(layers.data(), layers.size(), rows, outs.data(), call.threads());
}

void GroupedLinearOp::infer(const Inference& inference) {
  const Inference::Dims x = inference.input(0);
  if (x.empty()) return;
  const std::vector<std::int64_t> outputs = inference.integers("N");
  // ONNX Runtime writes shapes beyond the outputs if told to, and does not say how many there are: as
  // many as layers, in a node that is whole.
  if (inference.inputs() != 1 + 4 * outputs.size()) return;
  for (std::size_t i = 0; i < outputs.size(); ++i) inference.output(i, with_last(x, outputs[i]));
}

GatedLinearOp::GatedLinearOp(const Node& node) : layers_(node) {
  if (layers_.all().size() != 2 || layers_.all()[0].weight.n != layers_.all()[1].weight.n)
    node.fail("the attribute N lists " + std::to_string(layers_.all().size()) + " layers; it has to be two of one size");
  if (layers_.all()[1].activation != Activation::kNone) node.fail("the attribute activation gives the second layer one; only the first may have one");
}

void GatedLinearOp::run(Call& call) const {
  const Tensor<float> x = call.input<float>(0, "X");
  const Rows rows = rows_of(x, layers_.inputs());
  const Linear &gate = layers_.all()[0], &factor = layers_.all()[1];
  const Output out{call.output(0, with_last(x.shape, gate.weight.n)), DType::kFloat32, gate.weight.n, nullptr, 0};
  gated_linear(gate, gate.activation, factor, rows, out, call.threads());
}

void GatedLinearOp::infer(const Inference& inference) {
  const Inference::Dims x = inference.input(0);
  const std::vector<std::int64_t> outputs = inference.integers("N");
  if (!x.empty() && !outputs.empty()) inference.output(0, with_last(x, outputs[0]));
}

}  // namespace octavo::ort
