#include "sources.h"

#include <nanobind/stl/vector.h>

#include <cstring>

namespace octavo {
namespace {

PyObject* name(const char* text) { return PyUnicode_InternFromString(text); }

// -1 where the tensor has none: an inference tensor.
long version_of(PyObject* tensor) {
  static PyObject* const version = name("_version");
  const Owned found(PyObject_GetAttr(tensor, version));
  const long number = found ? PyLong_AsLong(found.get()) : -1;
  PyErr_Clear();
  return number;
}

std::uint64_t word_at(std::uintptr_t at) {
  std::uint64_t word;
  std::memcpy(&word, reinterpret_cast<const void*>(at), sizeof(word));
  return word;
}

}  // namespace

Sources::Sources(const nb::tuple& tensors, const std::vector<std::uintptr_t>& addresses, const std::vector<Py_ssize_t>& sizes,
                 const std::vector<int>& reads) {
  expect(addresses.size() == tensors.size() && sizes.size() == tensors.size() && reads.size() == tensors.size(),
         "Sources: an address, a size and a way to read it for each tensor");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    Source s;
    s.none = tensors[i].is_none();
    s.at = addresses[i];
    s.gaps = sizes[i] < 0;
    s.bytes = s.gaps ? 0 : static_cast<std::size_t>(sizes[i]);
    expect(s.at != 0 || s.bytes == 0, "Sources: a tensor of some bytes lies somewhere");
    const auto* data = reinterpret_cast<const std::uint8_t*>(s.at);
    const auto read = static_cast<Read>(reads[i]);
    if (read != Read::kLive && s.bytes > 0) {
      s.sampled = read == Read::kSummed && s.bytes > kShort;
      if (s.sampled) {
        s.version = version_of(tensors[i].ptr());
        // Not at equal distances: those might all meet the same column of a block.
        const std::size_t step = s.bytes / kWords;
        for (std::size_t w = 0; w < kWords; ++w) {
          s.place[w] = w * step + w * 7919 % (step - sizeof(std::uint64_t));
          s.word[w] = word_at(s.at + s.place[w]);
        }
      } else {
        s.copy.assign(data, data + s.bytes);
      }
    }
    sources_.push_back(std::move(s));
  }
}

// Address and extent, as far as can be asked at once.
bool Sources::Source::same_memory(PyObject* tensor) const {
  if (to_dltensor) {
    nb::dlpack::dltensor t;
    if (!view(tensor, t) || address(t) != at) return false;
    std::size_t count = 1;
    for (std::int32_t i = 0; i < t.ndim; ++i) count *= static_cast<std::size_t>(t.shape[i]);
    return count * (t.dtype.bits / 8) == bytes && contiguous(t);
  }
  static PyObject* const data_ptr = name("data_ptr");
  const Owned found(PyObject_CallMethodNoArgs(tensor, data_ptr));
  const bool equal = found && PyLong_AsSize_t(found.get()) == at;
  if (PyErr_Occurred()) PyErr_Clear();
  return equal;
}

bool Sources::Source::same(PyObject* tensor) const {
  if (none || tensor == Py_None) return none && tensor == Py_None;
  if (gaps || !same_memory(tensor)) return false;
  if (!copy.empty()) return std::memcmp(reinterpret_cast<const void*>(at), copy.data(), bytes) == 0;
  if (!sampled) return true;
  if (version >= 0 && version_of(tensor) != version) return false;
  std::uint64_t differs = 0;
  for (std::size_t w = 0; w < kWords; ++w) differs |= word_at(at + place[w]) ^ word[w];
  return differs == 0;
}

bool Sources::current(PyObject* buffers) const {
  PyObject *key, *value;
  Py_ssize_t at = 0;
  for (const Source& source : sources_) {
    if (!PyDict_Next(buffers, &at, &key, &value)) return false;
    Py_INCREF(value);
    const Owned held(value);
    if (!source.same(value)) return false;
  }
  return true;
}

bool Sources::current_of(PyObject* tensors) const {
  if (static_cast<std::size_t>(PyTuple_GET_SIZE(tensors)) != sources_.size()) return false;
  for (std::size_t i = 0; i < sources_.size(); ++i)
    if (!sources_[i].same(PyTuple_GET_ITEM(tensors, static_cast<Py_ssize_t>(i)))) return false;
  return true;
}

void bind_sources(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<Sources>(m, "Sources")
      .def(nb::init<const nb::tuple&, const std::vector<std::uintptr_t>&, const std::vector<Py_ssize_t>&, const std::vector<int>&>(),
           "tensors"_a, "addresses"_a, "sizes"_a, "reads"_a)
      .def("current", [](const Sources& s, const nb::dict& buffers) { return s.current(buffers.ptr()); }, "buffers"_a)
      .def("current_of", [](const Sources& s, const nb::tuple& tensors) { return s.current_of(tensors.ptr()); }, "tensors"_a);
}

}  // namespace octavo
