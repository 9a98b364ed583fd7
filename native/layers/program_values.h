// What a program's values are in a call: memory with sizes and strides that are known only then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "contract/kernels.h"

namespace octavo {

enum class ValueType : int { kFloat32, kBool, kInt64 };
constexpr std::size_t kMostAxes = 6;

constexpr std::size_t bytes_of(ValueType type) {
  return type == ValueType::kFloat32 ? 4 : type == ValueType::kBool ? 1 : 8;
}
const char* name_of(ValueType type);

struct View {
  ValueType type = ValueType::kFloat32;
  std::size_t axes = 0;
  std::size_t sizes[kMostAxes] = {};
  std::size_t strides[kMostAxes] = {};  // elements
  int memory = -1;                      // whose memory: that of the value of this number; -1: none yet
  std::size_t offset = 0;               // bytes from its first
  std::uint8_t* data = nullptr;         // known while steps run

  std::size_t count(std::size_t first = 0) const {
    std::size_t n = 1;
    for (std::size_t i = first; i < axes; ++i) n *= sizes[i];
    return n;
  }
  std::size_t last() const { return sizes[axes - 1]; }
  std::size_t bytes() const { return count() * bytes_of(type); }
  bool contiguous() const;
  // Whether it holds each element of a piece of memory once, in any order of axes.
  bool dense() const;
  // Whether elements of the last axis lie side by side.
  bool side_by_side() const { return axes == 0 || strides[axes - 1] == 1 || sizes[axes - 1] <= 1; }
  // The strides of memory without gaps, the last axis the fastest.
  void lay_out();
  // The same with the axes in the order in which those of `like` lie.
  void lay_out_as(const View& like);
  void set_sizes(const std::size_t* from, std::size_t count);
  bool same_sizes(const View& other) const;
  std::string text() const;  // "float32 [2, 5, 64]"

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

// Axes of views of the same sizes (or sizes 1, which repeat), as few as go: neighbours that lie behind each other in
// all of them are one. The last is the fastest; there is at least one.
struct Loops {
  static constexpr std::size_t kMostViews = 4;
  std::size_t axes = 0;
  std::size_t sizes[kMostAxes];
  std::size_t strides[kMostViews][kMostAxes];

  // Over `sizes` of `axes`, which views broadcast to from the right. `kept` axes at the end stay as they are.
  Loops(const std::size_t* sizes, std::size_t axes, std::initializer_list<const View*> views, std::size_t kept = 0);

  // How often the last axis is passed.
  std::size_t rows() const {
    std::size_t n = 1;
    for (std::size_t i = 0; i + 1 < axes; ++i) n *= sizes[i];
    return n;
  }
  std::size_t inner() const { return sizes[axes - 1]; }
  std::size_t step(std::size_t view) const { return strides[view][axes - 1]; }
  // Elements of a view from its first to the row's first.
  std::size_t at(std::size_t view, std::size_t row) const {
    std::size_t offset = 0;
    for (std::size_t i = axes - 1; i-- > 0;) {
      offset += row % sizes[i] * strides[view][i];
      row /= sizes[i];
    }
    return offset;
  }
};

// Rows of a view, `stride` elements apart: all axes but the last as one.
struct RowsOf {
  std::size_t rows = 0, stride = 0;
  bool regular = false;  // false: they are not equally far apart, or their elements lie not side by side
  explicit RowsOf(const View& v);
};

}  // namespace octavo
