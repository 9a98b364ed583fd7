// Elements from one view to another, whatever their strides.
#pragma once

#include "layers/program_values.h"

namespace octavo {

// Both have one type, and `from` broadcasts to `to`. No element of `to` may be one of `from`, but for its own.
void copy(const View& from, const View& to, int threads);

}  // namespace octavo
