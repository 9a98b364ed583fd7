// The tensors that a kernel was made from, and enough of what they held to notice that one was written to.
//
// A kernel reads some tensors where they lie: whatever is written there counts from the next call on. Of others it
// keeps something of its own, which a write makes wrong, and PyTorch tells nobody of one. Vectors that were copied
// are compared byte by byte. Weights that were summed up are too long for that: they are compared by their version,
// which counts what is written through the tensor and its views, and by some words all over them, others in each
// call. What is written past the version (`tensor.data`, numpy) is noticed only where it meets one of those
// words: a whole weight does, a few bytes do not. Weights that have no version (inference tensors) or whose memory
// other processes may write are compared by a hash of all their bytes.
#pragma once

#include <array>
#include <atomic>
#include <vector>

#include "python/torch_tensor.h"

namespace octavo {

enum class Read : int { kLive, kCopied, kSummed, kHashed };

class Sources {
 public:
  // Of tensors (or None), as Python sees them: addresses (0 for None), bytes (negative where they have gaps).
  Sources(const nb::tuple& tensors, const std::vector<std::uintptr_t>& addresses, const std::vector<Py_ssize_t>& sizes,
          const std::vector<int>& reads);

  // Whether the first values of a module's dictionary of buffers are these tensors, as they were.
  bool current(PyObject* buffers) const;
  // The same of a tuple of tensors or None.
  bool current_of(PyObject* tensors) const;
  // Has the processor fetch what the next of these will look at; it asks nothing.
  void fetch() const;

 private:
  static constexpr std::size_t kAtOnce = 8, kMost = 64;  // words looked at in a long weight in one call, and in all
  static constexpr std::size_t kPage = 4096;             // bytes for which there is one word, up to kMost
  static constexpr std::size_t kShort = 512;             // bytes up to which all of a weight is compared

  struct Source {
    bool none = false;
    const void *object = nullptr, *shape = nullptr;  // where the tensor and its sizes were: only ever fetched, not read
    std::uintptr_t at = 0;
    std::size_t bytes = 0;
    bool gaps = false, sampled = false, hashed = false;
    long version = -1;  // -1: has none (an inference tensor) or none is needed
    std::uint64_t hash = 0;
    nb::object dtype;          // PyTorch has one object for each
    nb::dlpack::dtype type{};  // the same, where there is an exchange
    bool typed = false;        // whether `type` is known
    std::vector<std::uint8_t> copy;
    std::size_t step = 0;                                // between words, about
    std::vector<std::array<std::uint64_t, kAtOnce>> words;  // for each turn

    void sample();
    std::uintptr_t place(std::size_t turn, std::size_t word) const;
    bool same_words(std::size_t turn) const;
    bool same(PyObject* tensor, std::size_t turn) const;
    bool same_memory(PyObject* tensor) const;  // address, extent and dtype
  };
  std::vector<Source> sources_;
  mutable std::atomic<std::size_t> turn_{0};
};

}  // namespace octavo
