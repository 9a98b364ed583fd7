// Layer normalization in float32, over the table in use.
#pragma once

#include "contract/kernels.h"

namespace octavo {

// Rows of 0 columns, and no rows, are nothing to do.
void layer_norm(const NormRows& in, int threads);

}  // namespace octavo
