// What a tensor of PyTorch is in memory, asked of its objects: nothing of PyTorch is compiled in or linked.
#pragma once

#include "python/bind.h"

namespace octavo {

// A reference that this function owns.
class Owned {
 public:
  explicit Owned(PyObject* object) : object_(object) {}
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  bool is(PyObject* other) const { return object_ == other; }

 private:
  PyObject* object_;
};

// The table behind a type's `__dlpack_c_exchange_api__` (dlpack.h, version 1), as far as it is used.
struct Exchange {
  std::uint32_t major, minor;
  const Exchange* older;
  void *allocate, *from_object, *to_object;
  int (*to_dltensor)(void* object, nb::dlpack::dltensor* out);  // may be null
};

// Null in a PyTorch before 2.10, which has no such exchange.
inline int (*to_dltensor)(void* tensor, nb::dlpack::dltensor* out) = nullptr;

inline void use_exchange(PyObject* capsule) {
  if (capsule == Py_None) return;
  const auto* exchange = static_cast<const Exchange*>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
  while (exchange && exchange->major != 1) exchange = exchange->older;
  PyErr_Clear();
  to_dltensor = exchange ? exchange->to_dltensor : nullptr;
}

// What there is of a tensor in memory, until Python runs again. False where it is not plain memory of the
// processor's: sparse, nested, of another device. There has to be an exchange.
inline bool view(PyObject* tensor, nb::dlpack::dltensor& out) {
  out = {};
  if (to_dltensor(tensor, &out) != 0) {
    PyErr_Clear();
    return false;
  }
  return out.device.device_type == nb::device::cpu::value;
}

inline std::uintptr_t address(const nb::dlpack::dltensor& t) {
  return reinterpret_cast<std::uintptr_t>(t.data) + t.byte_offset;
}

// Along an axis of one element the stride says nothing, and in a tensor of none all of them.
inline bool contiguous(const nb::dlpack::dltensor& t) {
  std::int64_t next = 1;
  bool gaps = false;
  for (std::int32_t i = t.ndim; i-- > 0;) {
    if (t.shape[i] == 0) return true;
    if (t.strides && t.shape[i] > 1 && t.strides[i] != next) gaps = true;
    next *= t.shape[i];
  }
  return !gaps;
}

}  // namespace octavo
