// A program as Python holds it: how it is built, and its call with tensors of PyTorch.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "layers/program.h"
#include "python/bound_linear.h"

namespace octavo {

class BoundProgram {
 public:
  BoundProgram() = default;
  BoundProgram(const BoundProgram&) = delete;
  BoundProgram& operator=(const BoundProgram&) = delete;
  ~BoundProgram() { delete idle_.load(); }

  // run(tensors, ints, threads): the outputs. Throws std::invalid_argument, and nb::python_error.
  nb::object run(const nb::tuple& tensors, const nb::tuple& ints, int threads);

  Program program;
  std::vector<nb::object> held;  // layers, whose memory steps read
  bool finished = false;

 private:
  class Lent;
  std::atomic<Call*> idle_{nullptr};  // of the last call: its vectors are large enough for the next
};

}  // namespace octavo
