#include "python/sources.h"

#include <nanobind/stl/vector.h>

#include <algorithm>
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

// Four lanes, as one would wait for each of its products.
std::uint64_t hash_of(std::uintptr_t at, std::size_t bytes) {
  constexpr std::uint64_t kPrime = 0x9E3779B97F4A7C15u;
  std::uint64_t lane[4] = {1, 2, 3, 4};
  std::size_t i = 0;
  for (; i + 32 <= bytes; i += 32)
    for (std::size_t l = 0; l < 4; ++l) {
      // Rotated, or what meets the highest bits only would be lost in the next product.
      const std::uint64_t mixed = (lane[l] ^ word_at(at + i + 8 * l)) * kPrime;
      lane[l] = (mixed << 31) | (mixed >> 33);
    }
  std::uint64_t rest[4] = {};
  std::memcpy(rest, reinterpret_cast<const void*>(at + i), bytes - i);
  std::uint64_t hash = bytes;
  for (std::size_t l = 0; l < 4; ++l)
    for (const std::uint64_t part : {lane[l], rest[l]}) {
      hash = (hash ^ part) * kPrime;
      hash ^= hash >> 29;
    }
  return hash;
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
    if (!s.none) {
      s.dtype = nb::getattr(tensors[i], "dtype");
      nb::dlpack::dltensor t;
      s.typed = to_dltensor && view(tensors[i].ptr(), t);
      if (s.typed) s.type = t.dtype;
      s.object = tensors[i].ptr();
      s.shape = s.typed ? t.shape : nullptr;
    }
    const auto* data = reinterpret_cast<const std::uint8_t*>(s.at);
    const auto read = static_cast<Read>(reads[i]);
    if (read != Read::kLive && s.bytes > 0) {
      s.sampled = read == Read::kSummed && s.bytes > kShort;
      s.hashed = read == Read::kHashed && s.bytes > kShort;
      if (s.sampled) {
        s.version = version_of(tensors[i].ptr());
        s.sample();
      } else if (s.hashed) {
        s.hash = hash_of(s.at, s.bytes);
      } else {
        s.copy.assign(data, data + s.bytes);
      }
    }
    sources_.push_back(std::move(s));
  }
}

void Sources::Source::sample() {
  words.resize(std::clamp(bytes / kPage, kAtOnce, kMost) / kAtOnce);
  step = bytes / (words.size() * kAtOnce);
  for (std::size_t turn = 0; turn < words.size(); ++turn)
    for (std::size_t i = 0; i < kAtOnce; ++i) words[turn][i] = word_at(place(turn, i));
}

// Those of one turn are all over the weight. Not at equal distances: those might all meet the same column of a block.
std::uintptr_t Sources::Source::place(std::size_t turn, std::size_t word) const {
  const std::size_t number = word * words.size() + turn;
  return at + number * step + number * 7919 % (step - sizeof(std::uint64_t));
}

bool Sources::Source::same_words(std::size_t turn) const {
  std::uint64_t differs = 0;
  for (std::size_t i = 0; i < kAtOnce; ++i) differs |= word_at(place(turn, i)) ^ words[turn][i];
  return differs == 0;
}

bool Sources::Source::same_memory(PyObject* tensor) const {
  if (typed) {
    nb::dlpack::dltensor t;
    if (!view(tensor, t) || address(t) != at) return false;
    if (t.dtype.code != type.code || t.dtype.bits != type.bits || t.dtype.lanes != type.lanes) return false;
    std::size_t count = 1;
    for (std::int32_t i = 0; i < t.ndim; ++i) count *= static_cast<std::size_t>(t.shape[i]);
    return count * (t.dtype.bits / 8) == bytes && contiguous(t);
  }
  static PyObject *const data_ptr = name("data_ptr"), *const dtype_name = name("dtype"), *const nbytes = name("nbytes");
  const Owned found(PyObject_CallMethodNoArgs(tensor, data_ptr)), type_now(PyObject_GetAttr(tensor, dtype_name)),
      size(PyObject_GetAttr(tensor, nbytes));
  const bool equal = found && type_now && size && PyLong_AsSize_t(found.get()) == at && type_now.is(dtype.ptr()) &&
                     PyLong_AsSize_t(size.get()) == bytes;
  if (PyErr_Occurred()) PyErr_Clear();
  return equal;
}

bool Sources::Source::same(PyObject* tensor, std::size_t turn) const {
  if (none || tensor == Py_None) return none && tensor == Py_None;
  if (gaps || !same_memory(tensor)) return false;
  if (!copy.empty()) return std::memcmp(reinterpret_cast<const void*>(at), copy.data(), bytes) == 0;
  if (hashed) return hash_of(at, bytes) == hash;
  if (!sampled) return true;
  if (version_of(tensor) != version) return false;
  return same_words(turn % words.size());
}

bool Sources::current(PyObject* buffers) const {
  PyObject *key, *value;
  Py_ssize_t at = 0;
  const std::size_t turn = turn_.fetch_add(1, std::memory_order_relaxed);
  for (const Source& source : sources_) {
    if (!PyDict_Next(buffers, &at, &key, &value)) return false;
    Py_INCREF(value);
    const Owned held(value);
    if (!source.same(value, turn)) return false;
  }
  return true;
}

bool Sources::current_of(PyObject* tensors) const {
  if (static_cast<std::size_t>(PyTuple_GET_SIZE(tensors)) != sources_.size()) return false;
  const std::size_t turn = turn_.fetch_add(1, std::memory_order_relaxed);
  for (std::size_t i = 0; i < sources_.size(); ++i)
    if (!sources_[i].same(PyTuple_GET_ITEM(tensors, static_cast<Py_ssize_t>(i)), turn)) return false;
  return true;
}

void Sources::fetch() const {
  const std::size_t turn = turn_.load(std::memory_order_relaxed);
  for (const Source& source : sources_) {
    __builtin_prefetch(source.object);
    if (source.shape)  // it lies amid what PyTorch keeps of the tensor
      for (int line = -1; line < 3; ++line)
        __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::intptr_t>(source.shape) + line * 64));
    if (source.words.empty()) continue;
    __builtin_prefetch(&source.words[turn % source.words.size()]);
    for (std::size_t i = 0; i < kAtOnce; ++i)
      __builtin_prefetch(reinterpret_cast<const void*>(source.place(turn % source.words.size(), i)));
  }
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
