// Steps that compute sizes, or look at memory in another way.
#pragma once

#include <vector>

#include "layers/program.h"

namespace octavo {

class SizeOf final : public Step {
 public:
  SizeOf(int value, std::size_t axis, int made) : value_(value), axis_(axis), made_(made) {}
  const char* name() const override { return "size"; }
  void resolve(Call& call) const override;
  bool computes() const override { return false; }

 private:
  int value_;
  std::size_t axis_;
  int made_;
};

enum class Arithmetic : int { kAdd, kSub, kMul, kFloorDiv, kMod, kMax, kMin };

class ComputeSize final : public Step {
 public:
  ComputeSize(Arithmetic op, int a, int b, int made) : op_(op), a_(a), b_(b), made_(made) {}
  const char* name() const override { return "compute"; }
  void resolve(Call& call) const override;
  bool computes() const override { return false; }

 private:
  Arithmetic op_;
  int a_, b_, made_;
};

// What all views are: one value in, one out, no data moved.
class ViewStep : public Step {
 public:
  ViewStep(int source, int made) : source_(source), made_(made) {
    reads = {source};
    makes = {made};
    shares = source;
  }
  bool computes() const override { return false; }

 protected:
  int source_, made_;
};

class Permute final : public ViewStep {
 public:
  Permute(int source, int made, std::vector<std::size_t> axes) : ViewStep(source, made), axes_(std::move(axes)) {}
  const char* name() const override { return "permute"; }
  void resolve(Call& call) const override;

 private:
  std::vector<std::size_t> axes_;
};

// Along one axis from `start` to `stop` (numbers of integers; negative ones count from the end, as in Python).
class Slice final : public ViewStep {
 public:
  Slice(int source, int made, std::size_t axis, int start, int stop, int step)
      : ViewStep(source, made), axis_(axis), start_(start), stop_(stop), step_(step) {}
  const char* name() const override { return "slice"; }
  void resolve(Call& call) const override;

 private:
  std::size_t axis_;
  int start_, stop_, step_;
};

// Axes of one element repeated, new axes in front. A size of -1 keeps the axis's own.
class Expand final : public ViewStep {
 public:
  Expand(int source, int made, std::vector<int> sizes) : ViewStep(source, made), sizes_(std::move(sizes)) {}
  const char* name() const override { return "expand"; }
  void resolve(Call& call) const override;

 private:
  std::vector<int> sizes_;
};

class Unsqueeze final : public ViewStep {
 public:
  Unsqueeze(int source, int made, std::size_t axis) : ViewStep(source, made), axis_(axis) {}
  const char* name() const override { return "unsqueeze"; }
  void resolve(Call& call) const override;

 private:
  std::size_t axis_;
};

class Squeeze final : public ViewStep {
 public:
  Squeeze(int source, int made, std::size_t axis) : ViewStep(source, made), axis_(axis) {}
  const char* name() const override { return "squeeze"; }
  void resolve(Call& call) const override;

 private:
  std::size_t axis_;
};

// A view where the strides allow it, else a copy. One size may be -1.
class Reshape final : public Step {
 public:
  Reshape(int source, int made, std::vector<int> sizes) : source_(source), made_(made), sizes_(std::move(sizes)) {
    reads = {source};
    makes = {made};
    shares = source;
  }
  const char* name() const override { return "reshape"; }
  void resolve(Call& call) const override;
  void run(Call& call) const override;

 private:
  int source_, made_;
  std::vector<int> sizes_;
};

// Itself where it lies without gaps, else a copy.
class Contiguous final : public Step {
 public:
  Contiguous(int source, int made) : source_(source), made_(made) {
    reads = {source};
    makes = {made};
    shares = source;
  }
  const char* name() const override { return "contiguous"; }
  void resolve(Call& call) const override;
  void run(Call& call) const override;

 private:
  int source_, made_;
};

}  // namespace octavo
