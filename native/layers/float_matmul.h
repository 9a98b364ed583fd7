// Products of float32 matrices, over the table in use: each output is one chain of fused multiply-adds, in ascending
// order of what is summed, so that every instruction set gives the same bits.
#pragma once

#include "layers/program_values.h"

namespace octavo {

// out [..., m, n] = a [..., m, k] b [..., k, n] of any strides; what stands before the last two axes broadcasts to that of
// `out`, which is contiguous. Throws std::bad_alloc before anything is written.
void float_matmul(const View& a, const View& b, const View& out, int threads);

}  // namespace octavo
