// Steps of a block's layers: linear, norm, rotary positions, attention.
#pragma once

#include <vector>

#include "layers/attention.h"
#include "layers/linear.h"
#include "layers/program.h"

namespace octavo {

// Layers over the rows of one float32 value, which are quantized once, or normalized and quantized.
class LinearStep final : public Step {
 public:
  struct Normed {
    bool asked = false;
    Norm kind = Norm::kLayer;
    int weight = -1, bias = -1;              // -1: none
    float eps = 0.0f;
    int made = -1;                           // the normalized rows; -1: nobody else reads them
  };
  struct Parts {
    int x;
    std::vector<const Linear*> layers;       // they outlive the program
    std::vector<Activation> activations;     // of each layer, in the place of its own; of a gate of two, its activation alone
    int residual;                            // -1: none; of one layer
    bool gated;
    std::vector<int> made;
    int rows, added;                         // x and residual side by side, where they are not
    std::vector<int> span;                   // indices of the rows that are read of the results; none: all are
    Normed norm;                             // what x goes through first
  };
  explicit LinearStep(Parts parts);
  const char* name() const override { return p_.gated ? "gated linear" : "linear"; }
  void resolve(Call& call) const override;
  void run(Call& call) const override;

 private:
  NormRows norm_of(Call& call, const Rows& rows) const;

  Parts p_;
};

class NormStep final : public Step {
 public:
  struct Parts {
    Norm kind;
    int x, residual, weight, bias;           // -1: none
    float eps;
    int sum, made;                           // sum: -1 without residual
    int rows, added;                         // x and residual side by side, where they are not
  };
  explicit NormStep(Parts parts);
  const char* name() const override { return "norm"; }
  void resolve(Call& call) const override;
  void run(Call& call) const override;

 private:
  Parts p_;
};

class RotaryStep final : public Step {
 public:
  struct Parts {
    int x, cos, sin;
    bool interleaved;
    int made;
    int rows, cosines, sines;                // x side by side, where it is not; the tables where their strides differ
  };
  explicit RotaryStep(Parts parts);
  const char* name() const override { return "rotary"; }
  void resolve(Call& call) const override;
  void run(Call& call) const override;

 private:
  Parts p_;
};

class AttentionStep final : public Step {
 public:
  struct Parts {
    int q, k, v;
    float scale;
    int bias, mask;                          // -1: none
    bool causal;
    int offset, window;                      // integers
    float softcap;
    bool bfloat16;
    int made;
    int queries, keys, values;               // q, k and v side by side, where they are not
  };
  explicit AttentionStep(Parts parts);
  const char* name() const override { return "attention"; }
  void resolve(Call& call) const override;
  void run(Call& call) const override;

 private:
  Parts p_;
};

}  // namespace octavo
