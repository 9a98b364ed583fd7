// Functions of the last axis, over the table in use: softmax, sums.
#pragma once

#include "layers/program_values.h"

namespace octavo {

// `out` is contiguous. Elements of x lie side by side along the last axis.
void softmax(const View& x, const View& out, int threads);
// The sum of the last axis divided by `by`; one element of `out` for each row.
void row_sums(const View& x, float by, const View& out, int threads);

}  // namespace octavo
