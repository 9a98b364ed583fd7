// The tensors that a kernel was made from, and enough of what they held to notice that one was written to.
//
// A kernel reads some tensors where they lie: whatever is written there counts from the next call on. Of others it
// keeps something of its own, which a write makes wrong, and PyTorch tells nobody of one. Vectors that were copied
// are compared byte by byte. Weights that were summed up are too long for that: they are compared by their version,
// which counts what is written through PyTorch, and by a few words all over them, which are about to be read
// anyway: what `tensor.data`, numpy or another process writes is a whole weight.
#pragma once

#include <array>
#include <vector>

#include "torch_tensor.h"

namespace octavo {

enum class Read : int { kLive, kCopied, kSummed };

class Sources {
 public:
  // Of tensors (or None), as Python sees them: addresses (0 for None), bytes (negative where they have gaps).
  Sources(const nb::tuple& tensors, const std::vector<std::uintptr_t>& addresses, const std::vector<Py_ssize_t>& sizes,
          const std::vector<int>& reads);

  // Whether the first values of a module's dictionary of buffers are these tensors, as they were.
  bool current(PyObject* buffers) const;
  // The same of a tuple of tensors or None.
  bool current_of(PyObject* tensors) const;

 private:
  static constexpr std::size_t kWords = 8;       // looked at in a long tensor
  static constexpr std::size_t kShort = 512;  // bytes up to which all of a weight is compared

  struct Source {
    bool none = false;
    std::uintptr_t at = 0;
    std::size_t bytes = 0;
    bool gaps = false, sampled = false;
    long version = -1;  // -1: has none (an inference tensor) or none is needed
    std::vector<std::uint8_t> copy;
    std::array<std::size_t, kWords> place{};
    std::array<std::uint64_t, kWords> word{};

    bool same(PyObject* tensor) const;
    bool same_memory(PyObject* tensor) const;
  };
  std::vector<Source> sources_;
};

}  // namespace octavo
