// Elements of two vectors in another order: GCC and clang say it differently.
#pragma once

#include "isa/constant_indices.h"

namespace octavo {
namespace {

// Element I of the elements of `a` and, behind them, of `b`, for each I. V is one of the compiler's vectors of integers.
template <int... I, class V>
OCTAVO_INLINE V shuffled(V a, V b) {
#if defined(__clang__)
  return __builtin_shufflevector(a, b, I...);
#else
  return __builtin_shuffle(a, b, V{I...});
#endif
}

}  // namespace
}  // namespace octavo
