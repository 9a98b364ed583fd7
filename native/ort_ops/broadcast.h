// Shapes that broadcast, as NumPy's do.
#pragma once

#include <array>
#include <cstddef>

#include "ort_ops/kernel.h"
#include "ort_ops/tensor.h"

namespace octavo::ort {

// The shape that two broadcast to; the names are for the message of the error where they do not.
Shape broadcast(const Shape& a, const char* a_name, const Shape& b, const char* b_name);

// The same as far as it is known: a size that may be either is nobody's.
Inference::Dims broadcast(const Inference::Dims& a, const Inference::Dims& b);

// Whether two sizes are known to be the same.
bool same_size(const Inference::Dim& a, const Inference::Dim& b);

// Elements from one to the next along each dimension of `all`; 0 where `shape` repeats.
using Strides = std::array<std::size_t, Shape::kMost>;
Strides strides_in(const Shape& shape, const Shape& all);

}  // namespace octavo::ort
