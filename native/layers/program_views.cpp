#include "layers/program_views.h"

#include <algorithm>
#include <stdexcept>

#include "layers/copy.h"

namespace octavo {
namespace {

std::int64_t floor_divided(std::int64_t a, std::int64_t b) {
  if (b == 0) throw std::invalid_argument("divides by 0");
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

// Strides of `sizes` over the memory of `from`; false where no strides are that.
bool view_strides(const View& from, View& to) {
  if (from.count() == 0) {
    to.lay_out();
    return true;
  }
  // Axes of `from` that lie behind each other are taken as one, the last first, and given out to axes of `to`.
  std::size_t i = from.axes, j = to.axes;
  while (i > 0 && from.sizes[i - 1] == 1) --i;
  for (; i > 0;) {
    std::size_t stride = from.strides[i - 1], run = from.sizes[i - 1];
    for (--i; i > 0 && (from.sizes[i - 1] == 1 || from.strides[i - 1] == stride * run); --i) run *= from.sizes[i - 1];
    while (run > 1) {
      if (j == 0 || run % to.sizes[j - 1] != 0) return false;
      to.strides[--j] = stride;
      stride *= to.sizes[j];
      run /= to.sizes[j];
    }
  }
  while (j > 0) {
    if (to.sizes[j - 1] != 1) return false;
    to.strides[--j] = 1;
  }
  return true;
}

}  // namespace

void SizeOf::resolve(Call& call) const {
  call.integers[static_cast<std::size_t>(made_)] = static_cast<std::int64_t>(call.at(value_).sizes[axis_]);
}

void ComputeSize::resolve(Call& call) const {
  const std::int64_t a = call.integer(a_), b = call.integer(b_);
  std::int64_t found = 0;
  switch (op_) {
    case Arithmetic::kAdd: found = a + b; break;
    case Arithmetic::kSub: found = a - b; break;
    case Arithmetic::kMul: found = a * b; break;
    case Arithmetic::kFloorDiv: found = floor_divided(a, b); break;
    case Arithmetic::kMod: found = a - b * floor_divided(a, b); break;
    case Arithmetic::kMax: found = std::max(a, b); break;
    case Arithmetic::kMin: found = std::min(a, b); break;
  }
  call.integers[static_cast<std::size_t>(made_)] = found;
}

void Permute::resolve(Call& call) const {
  View& v = call.share(made_, source_);
  const View& from = call.at(source_);
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    v.sizes[i] = from.sizes[axes_[i]];
    v.strides[i] = from.strides[axes_[i]];
  }
}

void Slice::resolve(Call& call) const {
  View& v = call.share(made_, source_);
  const auto size = static_cast<std::int64_t>(v.sizes[axis_]);
  const auto bounded = [size](std::int64_t at) { return std::min(std::max<std::int64_t>(at < 0 ? at + size : at, 0), size); };
  const std::int64_t start = bounded(call.integer(start_)), stop = bounded(call.integer(stop_)), step = call.integer(step_);
  if (step < 1) call.fail("step is " + std::to_string(step) + ", it needs to be 1 or more");
  v.sizes[axis_] = static_cast<std::size_t>(std::max<std::int64_t>(0, (stop - start + step - 1) / step));
  v.offset += static_cast<std::size_t>(start) * v.strides[axis_] * bytes_of(v.type);
  v.strides[axis_] *= static_cast<std::size_t>(step);
}

void Expand::resolve(Call& call) const {
  const View from = call.at(source_);
  View& v = call.share(made_, source_);
  const std::size_t missing = sizes_.size() - from.axes;
  v.axes = sizes_.size();
  for (std::size_t i = 0; i < v.axes; ++i) {
    const std::int64_t wanted = call.integer(sizes_[i]);
    const std::size_t own = i < missing ? 1 : from.sizes[i - missing];
    const std::size_t size = wanted == -1 && i >= missing ? own : call.size(sizes_[i], "a size");
    if (own != 1 && own != size) call.fail(source_, "axis " + std::to_string(i - missing) + " does not expand to " + std::to_string(size));
    v.sizes[i] = size;
    v.strides[i] = i < missing || (own == 1 && size != 1) ? 0 : from.strides[i - missing];
  }
}

void Unsqueeze::resolve(Call& call) const {
  View& v = call.share(made_, source_);
  for (std::size_t i = v.axes; i > axis_; --i) {
    v.sizes[i] = v.sizes[i - 1];
    v.strides[i] = v.strides[i - 1];
  }
  ++v.axes;
  v.strides[axis_] = axis_ + 1 < v.axes ? v.strides[axis_ + 1] * v.sizes[axis_ + 1] : 1;
  v.sizes[axis_] = 1;
}

void Squeeze::resolve(Call& call) const {
  View& v = call.share(made_, source_);
  if (v.sizes[axis_] != 1) call.fail(source_, "axis " + std::to_string(axis_) + " has more than one element");
  for (std::size_t i = axis_; i + 1 < v.axes; ++i) {
    v.sizes[i] = v.sizes[i + 1];
    v.strides[i] = v.strides[i + 1];
  }
  --v.axes;
}

void Reshape::resolve(Call& call) const {
  const View& from = call.at(source_);
  const std::size_t count = from.count();
  View to = from;
  to.axes = sizes_.size();
  std::size_t product = 1, open = kMostAxes;
  for (std::size_t i = 0; i < to.axes; ++i) {
    if (call.integer(sizes_[i]) == -1 && open == kMostAxes) {
      open = i;
      continue;
    }
    to.sizes[i] = call.size(sizes_[i], "a size");
    product *= to.sizes[i];
  }
  if (open < kMostAxes) to.sizes[open] = product ? count / product : 0;
  if (to.count() != count || (open < kMostAxes && product == 0)) {
    std::string wanted;
    for (std::size_t i = 0; i < to.axes; ++i) wanted += (i ? ", " : "") + std::to_string(call.integer(sizes_[i]));
    call.fail(source_, "does not reshape to [" + wanted + "]");
  }
  if (view_strides(from, to)) {
    call.at(made_) = to;
    return;
  }
  call.make(made_, to.sizes, to.axes);
  call.work += static_cast<double>(count);
}

void Reshape::run(Call& call) const {
  const View& v = call.at(made_);
  if (v.memory != made_) return;
  View as_source = call.at(source_);
  as_source.lay_out();
  as_source.data = v.data;
  copy(call.at(source_), as_source, call.threads);
}

void Contiguous::resolve(Call& call) const {
  const View& from = call.at(source_);
  if (from.contiguous()) {
    call.share(made_, source_);
    return;
  }
  call.make(made_, from.sizes, from.axes);
  call.work += static_cast<double>(from.count());
}

void Contiguous::run(Call& call) const {
  if (call.at(made_).memory == made_) copy(call.at(source_), call.at(made_), call.threads);
}

}  // namespace octavo
