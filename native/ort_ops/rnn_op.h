// ai.octavo.LSTM, GRU and RNN: one recurrent layer with one direction or two, as ONNX's operators of
// the same names, over int8 weights; x and h are quantized row by row as they come.
//
// Inputs, D directions one behind the other, g gates (4, 3, 1), b = ceil(hidden_size / 16) blocks of 16
// hidden units, rows = g * b * 16:
//
//     X        float32 [T, B, I], or [B, T, I] (layout 1)
//     W        int8 [D, g * b, ceil(I/4), 16, 4], packed
//     W_scale  float32 [D, rows], 1 for units that there are not
//     R        int8 [D, g * b, ceil(H/4), 16, 4], packed
//     R_scale  float32 [D, rows]
//     B        float32 [D, p, rows]: biases of x's product, and (p = 2: a GRU with linear_before_reset)
//              of h's, which for r and z is 0; else p = 1, and they are the sums of both
//
// Rows lie as octavo.core.recurrent_weights makes them: [b][g][16], gates in PyTorch's order i f n o, r z n.
// R of a GRU without linear_before_reset holds r and z, [b][2][16], and behind all of them n, [b][16].
//
// Then those of sequence_lens int32 [B], initial_h and (LSTM) initial_c float32 [D, B, H], or [B, D, H]
// (layout 1), that the attribute `given` names. Attributes: input_size, hidden_size, direction, layout,
// clip, GRU: linear_before_reset, RNN: activation ("tanh", "relu"), W_checksum, R_checksum, and outputs,
// their number.
//
// Outputs, each of them optional: Y float32 [T, D, B, H] or [B, T, D, H], 0 behind an item's end; Y_h and
// (LSTM) Y_c, shaped as initial_h, 0 for items without steps (so does ONNX Runtime).
#pragma once

#include <vector>

#include "layers/gate_powers.h"
#include "layers/linear.h"
#include "layers/rnn.h"
#include "ort_ops/operator.h"

namespace octavo::ort {

class RecurrentOp {
 public:
  static constexpr Input kInputs[] = {{ElementType::kFloat}, {ElementType::kInt8}, {ElementType::kFloat},
                                      {ElementType::kInt8},  {ElementType::kFloat}, {ElementType::kFloat},
                                      {ElementType::kUndefined, kOptional}, {ElementType::kUndefined, kOptional}};
  static constexpr std::size_t kOutputs = 2;
  static constexpr bool kManyOutputs = false, kOptionalOutputs = true;

  void run(Call& call) const;
  static void infer(const Inference& inference) { infer_up_to(kOutputs, inference); }

 protected:
  RecurrentOp(const Node& node, Recurrence kind);
  // Of at most so many outputs, which is how many the operator can have.
  static void infer_up_to(std::int64_t most, const Inference& inference);

 private:
  void read_weights(const Node& node);
  void read_given(const Node& node);
  std::size_t directions() const { return net_.layers[0].size(); }
  Shape state_shape(std::size_t batch) const;
  // Whether the core's [D, B, H] is not what the states of the node look like in memory.
  bool swapped(std::size_t batch) const { return batch_first_ && directions() > 1 && batch > 1; }
  const float* initial(Call& call, std::size_t index, const char* name, std::size_t batch) const;

  // A final state: where it goes (null: nothing reads it), and where the core puts it.
  struct Final {
    float* to;
    float* from;
  };
  Final final(Call& call, std::size_t index, std::size_t batch) const;
  void finish(const Final& state, const Sequence& sequence) const;

  Buffer copies_[2];  // of W and R, where they do not lie on a cache line
  std::vector<Linear> linears_;
  GatePowers powers_;
  Recurrent net_;
  bool batch_first_ = false;
  std::size_t lengths_ = 0, initial_h_ = 0, initial_c_ = 0;  // inputs; 0: not given
};

class LstmOp : public RecurrentOp {
 public:
  static constexpr const char* kName = "LSTM";
  static constexpr Input kInputs[] = {{ElementType::kFloat}, {ElementType::kInt8}, {ElementType::kFloat},
                                      {ElementType::kInt8},  {ElementType::kFloat}, {ElementType::kFloat},
                                      {ElementType::kUndefined, kOptional}, {ElementType::kUndefined, kOptional},
                                      {ElementType::kUndefined, kOptional}};
  static constexpr std::size_t kOutputs = 3;

  static void infer(const Inference& inference) { infer_up_to(kOutputs, inference); }

  explicit LstmOp(const Node& node) : RecurrentOp(node, Recurrence::kLstm) {}
};

class GruOp : public RecurrentOp {
 public:
  static constexpr const char* kName = "GRU";

  explicit GruOp(const Node& node);
};

class RnnOp : public RecurrentOp {
 public:
  static constexpr const char* kName = "RNN";

  explicit RnnOp(const Node& node);
};

}  // namespace octavo::ort
