#include "layers/program_values.h"

#include <algorithm>

namespace octavo {

const char* name_of(ValueType type) {
  return type == ValueType::kFloat32 ? "float32" : type == ValueType::kBool ? "bool" : "int64";
}

bool View::contiguous() const {
  std::size_t next = 1;
  bool gaps = false;
  for (std::size_t i = axes; i-- > 0;) {
    if (sizes[i] == 0) return true;
    if (sizes[i] > 1 && strides[i] != next) gaps = true;
    next *= sizes[i];
  }
  return !gaps;
}

bool View::dense() const {
  if (count() == 0) return true;
  View sorted = *this;
  sorted.lay_out_as(*this);
  for (std::size_t i = 0; i < axes; ++i)
    if (sizes[i] > 1 && sorted.strides[i] != strides[i]) return false;
  return true;
}

void View::lay_out() {
  std::size_t next = 1;
  for (std::size_t i = axes; i-- > 0;) {
    strides[i] = next;
    next *= std::max<std::size_t>(sizes[i], 1);
  }
}

void View::lay_out_as(const View& like) {
  const View from = like;  // it may be this one
  std::size_t order[kMostAxes];
  for (std::size_t i = 0; i < axes; ++i) order[i] = i;
  // By insertion: stable, and allocates nothing.
  for (std::size_t i = 1; i < axes; ++i)
    for (std::size_t j = i; j > 0 && from.strides[order[j]] > from.strides[order[j - 1]]; --j) std::swap(order[j], order[j - 1]);
  std::size_t next = 1;
  for (std::size_t i = axes; i-- > 0;) {
    strides[order[i]] = next;
    next *= std::max<std::size_t>(sizes[order[i]], 1);
  }
}

void View::set_sizes(const std::size_t* from, std::size_t count) {
  axes = count;
  for (std::size_t i = 0; i < count; ++i) sizes[i] = from[i];
}

bool View::same_sizes(const View& other) const {
  return axes == other.axes && std::equal(sizes, sizes + axes, other.sizes);
}

std::string View::text() const {
  std::string found = std::string(name_of(type)) + " [";
  for (std::size_t i = 0; i < axes; ++i) found += (i ? ", " : "") + std::to_string(sizes[i]);
  return found + "]";
}

Loops::Loops(const std::size_t* all, std::size_t count, std::initializer_list<const View*> views, std::size_t kept) {
  std::size_t v = 0;
  const std::size_t used = views.size();
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t steps[kMostViews] = {};
    v = 0;
    for (const View* view : views) {
      const std::size_t missing = count - view->axes;
      const bool repeats = i < missing || view->sizes[i - missing] == 1;
      steps[v++] = repeats ? 0 : view->strides[i - missing];
    }
    if (all[i] == 1 && i + kept < count) continue;
    bool joins = axes > 0 && i + kept < count;
    for (v = 0; joins && v < used; ++v) joins = strides[v][axes - 1] == steps[v] * all[i];
    if (!joins) ++axes;
    sizes[axes - 1] = joins ? sizes[axes - 1] * all[i] : all[i];
    for (v = 0; v < used; ++v) strides[v][axes - 1] = steps[v];
  }
  if (axes) return;
  axes = 1;
  sizes[0] = 1;
  for (v = 0; v < used; ++v) strides[v][0] = 0;
}

RowsOf::RowsOf(const View& v) {
  if (v.axes == 0) return;
  rows = v.count() / std::max<std::size_t>(1, v.last());
  if (v.last() == 0) {
    rows = 1;
    for (std::size_t i = 0; i + 1 < v.axes; ++i) rows *= v.sizes[i];
  }
  stride = v.last();
  regular = v.side_by_side();
  bool first = true;
  std::size_t next = 0;
  for (std::size_t i = v.axes - 1; i-- > 0;) {
    if (v.sizes[i] <= 1) continue;
    if (first) stride = v.strides[i];
    else if (v.strides[i] != next) regular = regular && rows == 0;
    first = false;
    next = v.strides[i] * v.sizes[i];
  }
}

}  // namespace octavo
