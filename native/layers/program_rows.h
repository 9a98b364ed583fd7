// Steps over rows and matrices: softmax, sums, products, and what moves rows: cat, gather, copies.
#pragma once

#include <utility>
#include <vector>

#include "layers/program.h"

namespace octavo {

// Along the last axis; `staged` takes x side by side, where it is not.
class SoftmaxStep final : public Step {
 public:
  SoftmaxStep(int x, int staged, int made);
  const char* name() const override { return "softmax"; }
  void resolve(Call& call) const override;
  void run(Call& call) const override;

 private:
  int x_, staged_, made_;
};

class SumStep final : public Step {
 public:
  SumStep(int x, int staged, bool mean, bool keeps_axis, int made);
  const char* name() const override { return mean_ ? "mean" : "sum"; }
  void resolve(Call& call) const override;
  void run(Call& call) const override;

 private:
  int x_, staged_;
  bool mean_, keeps_axis_;
  int made_;
};

class MatMulStep final : public Step {
 public:
  MatMulStep(int a, int b, int made);
  const char* name() const override { return "matmul"; }
  void resolve(Call& call) const override;
  void run(Call& call) const override;

 private:
  int a_, b_, made_;
};

class CatStep final : public Step {
 public:
  CatStep(std::vector<int> values, std::size_t axis, int made);
  const char* name() const override { return "cat"; }
  void resolve(Call& call) const override;
  void run(Call& call) const override;

 private:
  std::size_t axis_;
  int made_;
};

// Writes into the memory of a view; what reads that later reads what was written.
class CopyTo final : public Step {
 public:
  CopyTo(int from, int into);
  const char* name() const override { return "copy_to"; }
  void resolve(Call& call) const override;
  void run(Call& call) const override;

 private:
  int from_, into_;
};

// Slices of x along an axis, one for each of the indices (int64 of one axis), to a new value, or (`into` >= 0) slices of x
// to those of `into`, which are written.
class TakeStep final : public Step {
 public:
  TakeStep(int x, std::size_t axis, int index, int made, int into);
  const char* name() const override { return into_ >= 0 ? "index_copy" : "take"; }
  void resolve(Call& call) const override;
  void run(Call& call) const override;

 private:
  int x_;
  std::size_t axis_;
  int index_, made_, into_;
};

// out[.., i, ..] = x[.., index[.., i, ..], ..] along an axis, as torch.gather.
class GatherStep final : public Step {
 public:
  GatherStep(int x, std::size_t axis, int index, int made);
  const char* name() const override { return "gather"; }
  void resolve(Call& call) const override;
  void run(Call& call) const override;

 private:
  int x_;
  std::size_t axis_;
  int index_, made_;
};

// out[.., s, t] = a[.., s, :] . table[.., index[.., s, t], :], or with its last two axes turned: layers/gathered_product.h.
class GatheredProductStep final : public Step {
 public:
  GatheredProductStep(int a, int table, int index, bool transposed, int made);
  const char* name() const override { return "gathered product"; }
  void resolve(Call& call) const override;
  void run(Call& call) const override;

 private:
  int a_, table_, index_;
  bool transposed_;
  int made_;
};

// Rows of a table [count, width], by int64 indices of any shape.
class EmbeddingStep final : public Step {
 public:
  EmbeddingStep(int table, int index, int made);
  const char* name() const override { return "embedding"; }
  void resolve(Call& call) const override;
  void run(Call& call) const override;

 private:
  int table_, index_, made_;
};

// 0, 1, ... stop - 1, int64.
class ArangeStep final : public Step {
 public:
  ArangeStep(int stop, int made);
  const char* name() const override { return "arange"; }
  void resolve(Call& call) const override;
  void run(Call& call) const override;

 private:
  int stop_, made_;
};

// An integer as an int64 value of no axes.
class IntegerStep final : public Step {
 public:
  IntegerStep(int integer, int made);
  const char* name() const override { return "integer"; }
  void resolve(Call& call) const override;
  void run(Call& call) const override;

 private:
  int integer_, made_;
};

}  // namespace octavo
