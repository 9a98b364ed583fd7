// Shapes and tensors, as kernels see them. No shape that enters or leaves an operator is negative or large, even where an
// axis of 0 leaves it without elements: products of some of its axes never overflow.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "ort_ops/ort_api.h"

namespace octavo::ort {

struct Shape {
  static constexpr std::size_t kMost = 8;

  std::size_t rank = 0;
  std::array<std::int64_t, kMost> dims{};

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> d) : rank(d.size()) {
    std::size_t i = 0;
    for (std::int64_t v : d) dims[i++] = v;
  }

  std::int64_t operator[](std::size_t i) const { return dims[i]; }
  std::int64_t& operator[](std::size_t i) { return dims[i]; }
  std::int64_t last() const { return rank ? dims[rank - 1] : 1; }
  // Elements of the first `count` dimensions.
  std::size_t product(std::size_t count) const {
    std::size_t n = 1;
    for (std::size_t i = 0; i < count; ++i) n *= static_cast<std::size_t>(dims[i]);
    return n;
  }
  std::size_t elements() const { return product(rank); }

  // Elements where axes of 0 count as 1, and at least as many as the axes of any part have; none where that is more than
  // kMostElements, or an axis is negative.
  static constexpr std::int64_t kMostElements = INT64_C(1) << 40;
  std::optional<std::int64_t> extent() const {
    std::int64_t n = 1;
    for (std::size_t i = 0; i < rank; ++i) {
      if (dims[i] < 0 || dims[i] > kMostElements / n) return {};
      n *= dims[i] > 0 ? dims[i] : 1;
    }
    return n;
  }

  bool operator==(const Shape& other) const {
    if (rank != other.rank) return false;
    for (std::size_t i = 0; i < rank; ++i)
      if (dims[i] != other.dims[i]) return false;
    return true;
  }
  bool operator!=(const Shape& other) const { return !(*this == other); }

  std::string text() const {
    std::string s = "[";
    for (std::size_t i = 0; i < rank; ++i) s += (i ? ", " : "") + std::to_string(dims[i]);
    return s + "]";
  }
};

template <class T>
constexpr ElementType element_type();
template <>
constexpr ElementType element_type<float>() { return ElementType::kFloat; }
template <>
constexpr ElementType element_type<std::uint8_t>() { return ElementType::kUint8; }
template <>
constexpr ElementType element_type<std::int8_t>() { return ElementType::kInt8; }
template <>
constexpr ElementType element_type<std::int32_t>() { return ElementType::kInt32; }
template <>
constexpr ElementType element_type<std::int64_t>() { return ElementType::kInt64; }

inline const char* name_of(ElementType type) {
  switch (type) {
    case ElementType::kFloat: return "float32";
    case ElementType::kUint8: return "uint8";
    case ElementType::kInt8: return "int8";
    case ElementType::kInt32: return "int32";
    case ElementType::kInt64: return "int64";
    case ElementType::kBool: return "bool";
    default: return "another type";
  }
}

// A tensor of a known element type; data is null where an input is not given.
template <class T>
struct Tensor {
  const T* data = nullptr;
  Shape shape;
  explicit operator bool() const { return data != nullptr; }
};

struct AnyTensor {
  const void* data = nullptr;
  ElementType type = ElementType::kUndefined;
  Shape shape;
};

// Throws where the shape has no extent: every tensor that enters an operator and every output has one. A shape with some of
// its axes, or one that broadcasts to it, then has one too.
void check_extent(const Shape& shape, const std::string& name);

// The tensor behind `value`; `name` is for the message of the error where it has too many dimensions, or too large ones.
AnyTensor tensor_of(const Api& api, const Value* value, const char* name);

template <class T>
Tensor<T> typed(const AnyTensor& any, const char* name) {
  if (any.type != element_type<T>())
    throw Error(std::string(name) + " is " + name_of(any.type) + "; it has to be " + name_of(element_type<T>()));
  return {static_cast<const T*>(any.data), any.shape};
}

}  // namespace octavo::ort
