// Gates of recurrent layers as exponents of two. A sigmoid is made of 2^(-x log2 e) and a tanh of
// 2^(2 x log2 e): where scales and biases hold those factors, cells need not multiply by them.
// docs/notes/processors.md: "Gates come as exponents of two"
#pragma once

#include <memory>
#include <vector>

#include "layers/rnn.h"
#include "runtime/arena.h"

namespace octavo {

// The scales and biases that a network refers to instead of its own.
class GatePowers {
 public:
  GatePowers() = default;
  GatePowers(const GatePowers&) = delete;
  GatePowers& operator=(const GatePowers&) = delete;

  // For the directions of an LSTM or a GRU (kGru) whose two weights are int8 (float weights are referred to,
  // not held) and whose gates nothing bounds (bounds are of the gates themselves); others stay as they are,
  // and those with a scale or bias so large that a factor might take it, or a sum of two, beyond float32.
  // Call it once the layers are complete, and once alone: `net` then points into this. Throws std::bad_alloc.
  void fold(Recurrent& net);

 private:
  struct Folded {
    Weight weight;
    Buffer arrays;
  };
  static bool fits(const Matrix& matrix);
  void fold(Matrix& matrix, Recurrence kind);

  std::vector<std::unique_ptr<Folded>> folded_;
};

}  // namespace octavo
