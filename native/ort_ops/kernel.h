// What a kernel is given: attributes and constants when it is made, tensors when it runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "contract/kernels.h"
#include "ort_ops/ort_api.h"
#include "ort_ops/tensor.h"
#include "runtime/arena.h"
#include "runtime/host.h"

namespace octavo::ort {

// What all kernels of one registration (a SessionOptions) share: how many threads the session has,
// which ONNX Runtime does not say, and which is therefore tried out.
class Threads {
 public:
  int count(const Api& api, const KernelContext* context);

 private:
  std::atomic<int> found_{0};
  std::atomic<unsigned> trials_{0};
  std::atomic<std::int64_t> next_{0};  // when there is another trial, in nanoseconds of steady_clock
};

// A node while its kernel is made. `Operator` puts the label before every error.
class Node {
 public:
  Node(const Api& api, const KernelInfo* info, const char* op, Threads& threads);

  const Api& api;
  const KernelInfo* info;
  Threads& threads;
  std::string label;  // "node 'dense_1' (ai.octavo.Linear)"

  std::size_t inputs() const;
  std::size_t outputs() const;

  std::int64_t integer(const char* name) const;
  std::int64_t integer(const char* name, std::int64_t otherwise) const;
  // As an int in least..most.
  std::size_t size(const char* name, std::int64_t least = 1, std::int64_t most = INT32_MAX) const;
  float number(const char* name, float otherwise) const;
  std::string text(const char* name, const char* otherwise) const;
  std::vector<std::int64_t> integers(const char* name, std::vector<std::int64_t> otherwise) const;

  // A constant input of a known type and shape.
  template <class T>
  Tensor<T> constant(std::size_t index, const char* name, const Shape& shape) const {
    const Tensor<T> found = typed<T>(any_constant(index, name), name);
    if (found.shape != shape)
      fail(std::string(name) + " has shape " + found.shape.text() + "; the attributes say " + shape.text());
    return found;
  }

  // A packed weight: int8 of that shape whose bytes have the checksum that they were written with. It is referred to where
  // it lies on a cache line, else copied into `copy`.
  PackedData packed(std::size_t index, const char* name, const Shape& shape, std::int64_t checksum, Buffer& copy) const;
  // A packed matrix [n, k] in the format that the attribute `weight_format` names (int8 where there is none).
  PackedData packed_matrix(std::size_t index, const char* name, std::size_t n, std::size_t k, std::int64_t checksum, Buffer& copy) const;
  // Finite and above zero.
  const float* scales(std::size_t index, const char* name, const Shape& shape) const;

  // The session's, to be released where the Api lends_memory; else the process's.
  Allocator* allocator() const;

  [[noreturn]] void fail(const std::string& what) const { throw Error(what); }

 private:
  AnyTensor any_constant(std::size_t index, const char* name) const;
  WeightFormat format() const;
  const std::int8_t* checked_bytes(std::size_t index, const char* name, const Shape& shape, std::int64_t checksum, Buffer& copy) const;
};

// A call of a kernel: its tensors, and the session's threads and memory.
class Call final : public Host {
 public:
  Call(const Api& api, KernelContext* context, Allocator* allocator, Threads& threads)
      : api_(api), context_(context), allocator_(allocator), threads_(threads) {}
  ~Call() override;

  std::size_t inputs() const;
  AnyTensor any_input(std::size_t index, const char* name) const;
  template <class T>
  Tensor<T> input(std::size_t index, const char* name) const {
    return typed<T>(any_input(index, name), name);
  }
  // Whether an optional input is there: the file may name it "".
  bool given(std::size_t index) const;
  float* output(std::size_t index, const Shape& shape) const;
  // Null where nothing reads it.
  float* output_if_wanted(std::size_t index, const Shape& shape) const;

  // How many threads the session has for one operator.
  int threads() const { return threads_.count(api_, context_); }

  void parallel(int threads, int phases, Phase phase, void* job) override;
  double phase_microseconds() const override { return 5.0; }
  std::uint8_t* memory(std::size_t bytes) override;

 private:
  const Api& api_;
  KernelContext* context_;
  Allocator* allocator_;
  Threads& threads_;
  std::vector<void*> lent_;
};

// A node while shapes are inferred. Nothing here throws: what is not known is left out.
class Inference {
 public:
  struct Dim {
    std::int64_t value = -1;  // negative: `symbol`'s, or nobody knows
    std::string symbol;
  };
  using Dims = std::vector<Dim>;

  Inference(const Api& api, ShapeContext* context) : api_(api), context_(context) {}

  std::size_t inputs() const;
  // Empty where nothing is known of it (or it is a scalar).
  Dims input(std::size_t index) const;
  void output(std::size_t index, const Dims& dims) const;
  std::int64_t integer(const char* name, std::int64_t otherwise) const;
  std::vector<std::int64_t> integers(const char* name) const;
  std::string text(const char* name, const char* otherwise) const;

  // A size that no tensor can have is one that nobody knows.
  static Dim known(std::int64_t value) { return {value > Shape::kMostElements ? -1 : value, ""}; }
  static Dim product(const Dim& a, const Dim& b) {
    return a.value < 0 || b.value < 0 || (a.value > 0 && b.value > Shape::kMostElements / a.value) ? Dim{} : known(a.value * b.value);
  }

 private:
  const Api& api_;
  ShapeContext* context_;
};

// Of a packed weight [n, k].
Shape packed_shape(std::size_t n, std::size_t k);

// The activation that a word stands for, as in the attribute of that name.
Activation activation_of(const Node& node, const std::string& wanted);

// docs/notes/onnxruntime.md: "No input is left out before one that is given"
// Names of optional inputs that a node has, in order, as its attribute `given` lists them ("residual",
// "sequence_lens initial_h"). ONNX Runtime's shape inference cannot take a node that leaves an input out
// before one that it gives, so that ours leave none out.
std::vector<std::string> given_inputs(const Node& node, std::initializer_list<const char*> known);

}  // namespace octavo::ort
