// Recurrent layers (LSTM, GRU, plain RNN) over the table in use: any number of layers, one direction or
// both, int8 or float32 weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "contract/kernels.h"

namespace octavo {

// kGruReset is the GRU whose reset gate comes before the product (ONNX's linear_before_reset = 0).
enum class Recurrence : int { kLstm, kGru, kGruReset, kRnnTanh, kRnnRelu };

constexpr std::size_t gates_of(Recurrence r) {
  return r == Recurrence::kLstm ? 4 : r == Recurrence::kGru || r == Recurrence::kGruReset ? 3 : 1;
}

// A weight [n, k] and its bias: int8, or float32 in blocks [ceil(n/16)][k][16] with zeros for padding.
struct Matrix {
  const Weight* int8 = nullptr;
  const float* weight = nullptr;  // where int8 is null
  const float* bias = nullptr;    // padded; null: none
  std::size_t n = 0, k = 0;
  bool empty() const { return !int8 && !weight; }
  std::size_t blocks() const { return (n + kBlockN - 1) / kBlockN; }
  double bytes() const { return static_cast<double>(n) * static_cast<double>(k) * (int8 ? 1.0 : 4.0); }
};

// Rows of `input` and `state` lie in blocks [ceil(hidden/16)][gates][16]. Gates: i f n o (LSTM), r z n
// (GRU; kGruReset's `state` has r z alone), one (RNN).
struct Direction {
  bool reverse = false;
  bool powers = false;            // whether the gates' products are exponents of two: gate_powers.h
  Matrix input;                   // its bias is that of both, but for kGru's n
  Matrix state;                   // kGru: its bias is that of n's product, 0 for r and z
  Matrix second;                  // the LSTM's projection [output, hidden]; kGruReset's n; else empty
};

struct Recurrent {
  Recurrence kind = Recurrence::kLstm;
  std::size_t hidden = 0, output = 0;  // output: hidden, or the projection's size
  float clip = 0.0f;                   // bounds the gates before their sigmoid or tanh; 0: nothing does
  std::vector<std::vector<Direction>> layers;
};

// Strides are in elements; x and y hold their last dimension side by side. States lie as
// [layers * directions][batch][output], c as [...][hidden].
struct Sequence {
  const float* x = nullptr;
  std::size_t steps = 0, batch = 0, x_step = 0, x_item = 0;
  const std::int64_t* length = nullptr;  // [batch], each 0..steps; null: steps
  float* y = nullptr;                    // null: not wanted
  std::size_t y_step = 0, y_item = 0, y_direction = 0;
  const float* h0 = nullptr;             // null: zeros
  const float* c0 = nullptr;
  float* h = nullptr;                    // the states after each item's last step; null: not wanted
  float* c = nullptr;
};

// y is 0 behind an item's length; a reverse direction starts at the item's own end. Throws
// std::bad_alloc before anything is written.
void recurrent(const Recurrent& net, const Sequence& sequence, int threads);

}  // namespace octavo
