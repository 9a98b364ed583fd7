// What the binding files share. Each binds one part of the core; bindings.cpp calls them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "contract/kernels.h"
#include "layers/pack.h"
#include "python/limited.h"

namespace octavo {

namespace nb = nanobind;

template <class T, std::size_t D>
using Array = nb::ndarray<T, nb::ndim<D>, nb::c_contig, nb::device::cpu>;

inline void expect(bool condition, const std::string& what) {
  if (!condition) throw nb::value_error(what.c_str());
}

// A raw address from Python: numpy's ctypes.data, torch's data_ptr().
template <class T>
T* pointer(std::uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

// Packed weights as a layer takes them; `layer` is for the message of the error.
inline PackedData packed_data(const Array<const std::uint8_t, 1>& packed, std::size_t bytes, WeightFormat format, const std::string& layer) {
  expect(packed.shape(0) == bytes, layer + ": packed needs " + std::to_string(bytes) + " bytes");
  expect(bytes == 0 || reinterpret_cast<std::uintptr_t>(packed.data()) % kAlign == 0, layer + ": packed needs 64-byte alignment");
  return {reinterpret_cast<const std::int8_t*>(packed.data()), format};
}

// Work (multiply-accumulates of int8) from which a call gives up Python's lock: about 20 us.
constexpr double kLongWork = 4e6;

// Lets other Python threads run while a call is long enough to be worth it (giving the lock up and
// taking it again costs more than a small layer).
class MaybeRelease {
 public:
  explicit MaybeRelease(bool wanted) {
    if (wanted) state_ = PyEval_SaveThread();
  }
  ~MaybeRelease() {
    if (state_) PyEval_RestoreThread(state_);
  }
  MaybeRelease(const MaybeRelease&) = delete;
  MaybeRelease& operator=(const MaybeRelease&) = delete;

 private:
  PyThreadState* state_ = nullptr;
};

void bind_weights(nb::module_& m);
void bind_round_groups(nb::module_& m);
void bind_machine(nb::module_& m);
void bind_linear(nb::module_& m);
void bind_rnn(nb::module_& m);
void bind_conv(nb::module_& m);
void bind_half(nb::module_& m);
void bind_embedding(nb::module_& m);
void bind_attention(nb::module_& m);
void bind_sources(nb::module_& m);
void bind_torch(nb::module_& m);
void bind_guard(nb::module_& m);
void bind_program(nb::module_& m);

}  // namespace octavo
