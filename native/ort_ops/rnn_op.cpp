#include "ort_ops/rnn_op.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace octavo::ort {
namespace {

constexpr std::size_t kConstants = 6;  // inputs in front of those that `given` names

std::int64_t dim(std::size_t n) { return static_cast<std::int64_t>(n); }

// Whether each direction runs backwards.
std::vector<bool> directions_of(const Node& node) {
  const std::string direction = node.text("direction", "forward");
  if (direction == "forward") return {false};
  if (direction == "reverse") return {true};
  if (direction == "bidirectional") return {false, true};
  node.fail("the direction '" + direction + "' is unknown; there are forward, reverse, bidirectional");
}

// An attribute that is 0 or 1.
bool flag(const Node& node, const char* name) {
  const std::int64_t value = node.integer(name, 0);
  if (value != 0 && value != 1)
    node.fail(std::string("the attribute ") + name + " is " + std::to_string(value) + "; it is 0 or 1");
  return value == 1;
}

float clip_of(const Node& node) {
  const float clip = node.number("clip", 0.0f);
  if (!std::isfinite(clip) || clip < 0.0f)
    node.fail("the attribute clip is " + std::to_string(clip) + "; it is 0 (none) or a positive number");
  return clip;
}

Recurrence gru_kind(const Node& node) {
  return flag(node, "linear_before_reset") ? Recurrence::kGru : Recurrence::kGruReset;
}

Recurrence rnn_kind(const Node& node) {
  const std::string activation = node.text("activation", "tanh");
  if (activation == "tanh") return Recurrence::kRnnTanh;
  if (activation == "relu") return Recurrence::kRnnRelu;
  node.fail("the activation '" + activation + "' is unknown; there are tanh, relu");
}

// The packed weights of all directions in one input, and what belongs to their rows.
struct Stored {
  PackedData packed;
  const float* scale;
  std::size_t rows, k;  // of a direction

  // Rows first..first+n-1 of direction d, as a layer.
  Linear layer(std::size_t d, std::size_t first, std::size_t n, const float* bias) const {
    const std::size_t step = (k + kBlockK - 1) / kBlockK * kBlockK;  // bytes of a row
    const std::size_t at = d * rows + first;
    return Linear({packed.data + at * step, packed.format}, n, k, 0, scale + at, nullptr, bias, Activation::kNone);
  }
};

Stored stored(const Node& node, std::size_t index, std::size_t directions, std::size_t rows, std::size_t k, Buffer& copy) {
  static constexpr const char* kNames[][3] = {{"W", "W_scale", "W_checksum"}, {"R", "R_scale", "R_checksum"}};
  const char* const* names = kNames[index == 1 ? 0 : 1];
  const Shape shape{dim(directions), dim(rows / kBlockN), dim((k + kBlockK - 1) / kBlockK), kBlockN, kBlockK};
  const PackedData packed = node.packed(index, names[0], shape, node.integer(names[2]), copy);
  return {packed, node.scales(index + 1, names[1], {dim(directions), dim(rows)}), rows, k};
}

Matrix matrix(const Linear& layer) {
  return {&layer.weight, nullptr, layer.bias, layer.weight.n, layer.weight.k};
}

// [outer][inner][width] as [inner][outer][width].
void swap_axes(const float* from, std::size_t outer, std::size_t inner, std::size_t width, float* to) {
  for (std::size_t o = 0; o < outer; ++o)
    for (std::size_t i = 0; i < inner; ++i)
      std::memcpy(to + (i * outer + o) * width, from + (o * inner + i) * width, width * sizeof(float));
}

float* floats(Call& call, std::size_t count) {
  return reinterpret_cast<float*>(call.memory(count * sizeof(float) + 1));
}

// Lengths as the core takes them.
const std::int64_t* lengths_in(Call& call, std::size_t index, std::size_t batch, std::size_t steps) {
  const Tensor<std::int32_t> given = call.input<std::int32_t>(index, "sequence_lens");
  const Shape shape{dim(batch)};
  if (given.shape != shape)
    throw Error("sequence_lens has shape " + given.shape.text() + "; X says " + shape.text());
  auto* lengths = reinterpret_cast<std::int64_t*>(call.memory(batch * sizeof(std::int64_t) + 1));
  for (std::size_t b = 0; b < batch; ++b) {
    lengths[b] = given.data[b];
    if (lengths[b] < 0 || lengths[b] > dim(steps))
      throw Error("sequence_lens[" + std::to_string(b) + "] is " + std::to_string(lengths[b]) + ", not in 0.." +
                  std::to_string(steps));
  }
  return lengths;
}

}  // namespace

RecurrentOp::RecurrentOp(const Node& node, Recurrence kind) {
  net_.kind = kind;
  net_.hidden = net_.output = node.size("hidden_size", 1, kChunkK);
  net_.clip = clip_of(node);
  batch_first_ = flag(node, "layout");
  const std::size_t outputs = node.size("outputs", 1, kind == Recurrence::kLstm ? 3 : 2);
  if (outputs != node.outputs())
    node.fail("the attribute outputs is " + std::to_string(outputs) + "; the node has " + std::to_string(node.outputs()));
  read_weights(node);
  read_given(node);
}

void RecurrentOp::read_weights(const Node& node) {
  const std::vector<bool> reversed = directions_of(node);
  const std::size_t directions = reversed.size(), inputs = node.size("input_size", 1, kChunkK);
  const std::size_t units = round_up(net_.hidden, kBlockN), rows = gates_of(net_.kind) * units;
  const bool separate_biases = net_.kind == Recurrence::kGru, reset = net_.kind == Recurrence::kGruReset;
  const std::size_t biases = separate_biases ? 2 : 1, direct = reset ? 2 * units : rows;
  const Stored w = stored(node, 1, directions, rows, inputs, copies_[0]);
  const Stored r = stored(node, 3, directions, rows, net_.hidden, copies_[1]);
  const float* bias = node.constant<float>(5, "B", {dim(directions), dim(biases), dim(rows)}).data;
  linears_.reserve(3 * directions);  // what follows points into it
  net_.layers.resize(1);
  for (std::size_t d = 0; d < directions; ++d, bias += biases * rows) {
    Direction direction;
    direction.reverse = reversed[d];
    direction.input = matrix(linears_.emplace_back(w.layer(d, 0, rows, bias)));
    direction.state = matrix(linears_.emplace_back(r.layer(d, 0, direct, separate_biases ? bias + rows : nullptr)));
    if (reset) direction.second = matrix(linears_.emplace_back(r.layer(d, direct, units, nullptr)));
    net_.layers[0].push_back(direction);
  }
  powers_.fold(net_);
}

void RecurrentOp::read_given(const Node& node) {
  const bool lstm = net_.kind == Recurrence::kLstm;
  const std::vector<std::string> given = lstm ? given_inputs(node, {"sequence_lens", "initial_h", "initial_c"})
                                              : given_inputs(node, {"sequence_lens", "initial_h"});
  for (std::size_t i = 0; i < given.size(); ++i)
    (given[i] == "sequence_lens" ? lengths_ : given[i] == "initial_h" ? initial_h_ : initial_c_) = kConstants + i;
  if (node.inputs() != kConstants + given.size())
    node.fail("the attribute given names " + std::to_string(given.size()) + " inputs behind B; the node has " +
              std::to_string(node.inputs() - kConstants));
}

Shape RecurrentOp::state_shape(std::size_t batch) const {
  return batch_first_ ? Shape{dim(batch), dim(directions()), dim(net_.hidden)} : Shape{dim(directions()), dim(batch), dim(net_.hidden)};
}

// As the core takes it; null where it is not given.
const float* RecurrentOp::initial(Call& call, std::size_t index, const char* name, std::size_t batch) const {
  if (index == 0) return nullptr;
  const Tensor<float> given = call.input<float>(index, name);
  const Shape shape = state_shape(batch);
  if (given.shape != shape)
    throw Error(std::string(name) + " has shape " + given.shape.text() + "; it has to be " + shape.text());
  if (!swapped(batch)) return given.data;
  float* turned = floats(call, shape.elements());
  swap_axes(given.data, batch, directions(), net_.hidden, turned);
  return turned;
}

RecurrentOp::Final RecurrentOp::final(Call& call, std::size_t index, std::size_t batch) const {
  const Shape shape = state_shape(batch);
  float* to = call.output_if_wanted(index, shape);
  return {to, to && swapped(batch) ? floats(call, shape.elements()) : to};
}

void RecurrentOp::finish(const Final& state, const Sequence& sequence) const {
  if (!state.to) return;
  const std::size_t batch = sequence.batch, hidden = net_.hidden;
  for (std::size_t b = 0; b < batch; ++b) {
    if (sequence.steps > 0 && (!sequence.length || sequence.length[b] > 0)) continue;
    for (std::size_t d = 0; d < directions(); ++d) std::memset(state.from + (d * batch + b) * hidden, 0, hidden * sizeof(float));
  }
  if (state.from != state.to) swap_axes(state.from, directions(), batch, hidden, state.to);
}

void RecurrentOp::run(Call& call) const {
  const Tensor<float> x = call.input<float>(0, "X");
  const std::size_t inputs = net_.layers[0][0].input.k, hidden = net_.hidden, width = directions() * hidden;
  if (x.shape.rank != 3 || x.shape.last() != dim(inputs))
    throw Error("X has shape " + x.shape.text() + "; it has to be " + (batch_first_ ? "[B, T, " : "[T, B, ") +
                std::to_string(inputs) + "]");
  Sequence s;
  const auto first = static_cast<std::size_t>(x.shape[0]), second = static_cast<std::size_t>(x.shape[1]);
  s.steps = batch_first_ ? second : first;
  s.batch = batch_first_ ? first : second;
  s.x = x.data;
  s.x_step = batch_first_ ? inputs : s.batch * inputs;
  s.x_item = batch_first_ ? s.steps * inputs : inputs;
  if (lengths_) s.length = lengths_in(call, lengths_, s.batch, s.steps);
  s.h0 = initial(call, initial_h_, "initial_h", s.batch);
  s.c0 = initial(call, initial_c_, "initial_c", s.batch);
  s.y = call.output_if_wanted(0, batch_first_ ? Shape{dim(s.batch), dim(s.steps), dim(directions()), dim(hidden)}
                                              : Shape{dim(s.steps), dim(directions()), dim(s.batch), dim(hidden)});
  s.y_step = batch_first_ ? width : s.batch * width;
  s.y_item = batch_first_ ? s.steps * width : hidden;
  s.y_direction = batch_first_ ? hidden : s.batch * hidden;
  const Final h = final(call, 1, s.batch);
  const Final c = net_.kind == Recurrence::kLstm ? final(call, 2, s.batch) : Final{nullptr, nullptr};
  s.h = h.from;
  s.c = c.from;
  if (x.shape.elements() > 0) recurrent(net_, s, call.threads());
  finish(h, s);
  finish(c, s);
}

void RecurrentOp::infer_up_to(std::int64_t most, const Inference& inference) {
  using Dim = Inference::Dim;
  const Inference::Dims x = inference.input(0);
  const std::int64_t size = inference.integer("hidden_size", -1);
  if (x.size() != 3 || size < 0) return;
  const bool batch_first = inference.integer("layout", 0) == 1;
  const Dim steps = x[batch_first ? 1 : 0], batch = x[batch_first ? 0 : 1], hidden = Inference::known(size);
  const Dim directions = Inference::known(inference.text("direction", "forward") == "bidirectional" ? 2 : 1);
  inference.output(0, batch_first ? Inference::Dims{batch, steps, directions, hidden} : Inference::Dims{steps, directions, batch, hidden});
  const Inference::Dims state = batch_first ? Inference::Dims{batch, directions, hidden} : Inference::Dims{directions, batch, hidden};
  // ONNX Runtime does not say how many outputs there are, and writes beyond them where it is told to.
  const std::int64_t outputs = std::min<std::int64_t>(inference.integer("outputs", 1), most);
  for (std::int64_t i = 1; i < outputs; ++i) inference.output(static_cast<std::size_t>(i), state);
}

GruOp::GruOp(const Node& node) : RecurrentOp(node, gru_kind(node)) {}
RnnOp::RnnOp(const Node& node) : RecurrentOp(node, rnn_kind(node)) {}

}  // namespace octavo::ort
