#include "layers/gate_powers.h"

namespace octavo {
namespace {

// Of the gate in this place of a block: i f n o, or r z n.
float factor(std::size_t gate) { return gate == 2 ? kTanhPower : kSigmoidPower; }

constexpr float kMost = 1e37f;

}  // namespace

// False too for what is no number: it means the same either way.
bool GatePowers::fits(const Matrix& matrix) {
  if (!matrix.int8) return false;
  for (std::size_t i = 0; i < matrix.int8->padded_n(); ++i)
    if (!(matrix.int8->scale[i] < kMost) || (matrix.bias && !(__builtin_fabsf(matrix.bias[i]) < kMost))) return false;
  return true;
}

void GatePowers::fold(Matrix& matrix, Recurrence kind) {
  const Weight& own = *matrix.int8;
  const std::size_t padded = own.padded_n(), gates = gates_of(kind);
  Layout layout;
  const std::size_t scales = layout.add<float>(padded), biases = layout.add<float>(padded);
  auto made = std::make_unique<Folded>();
  std::uint8_t* base = made->arrays.need(layout.bytes());
  auto *scale = reinterpret_cast<float*>(base + scales), *bias = reinterpret_cast<float*>(base + biases);
  for (std::size_t i = 0; i < padded; ++i) {
    const float by = factor(i / kBlockN % gates);
    scale[i] = own.scale[i] * by;
    bias[i] = matrix.bias ? matrix.bias[i] * by : 0.0f;
  }
  made->weight = own;
  made->weight.scale = scale;
  matrix.int8 = &made->weight;
  if (matrix.bias) matrix.bias = bias;
  folded_.push_back(std::move(made));
}

void GatePowers::fold(Recurrent& net) {
  if (net.clip > 0.0f || (net.kind != Recurrence::kLstm && net.kind != Recurrence::kGru)) return;
  for (auto& layer : net.layers)
    for (Direction& d : layer) {
      if (!fits(d.input) || !fits(d.state)) continue;
      fold(d.input, net.kind);
      fold(d.state, net.kind);
      d.powers = true;
    }
}

}  // namespace octavo
