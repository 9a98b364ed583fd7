// Normalization of rows in float32, over the table in use: LayerNorm and RMSNorm, of x or of x + residual.
#pragma once

#include "contract/kernels.h"

namespace octavo {

// Rows of 0 columns, and no rows, are nothing to do.
void norm(const NormRows& in, int threads);

}  // namespace octavo
