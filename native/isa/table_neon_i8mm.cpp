// Advanced SIMD with its matrix products of int8, as ARM's servers since 2021 and Apple's processors since 2022 have them.
#include "contract/tables.h"
#include "isa/product_neon_i8mm.h"

namespace octavo {

KernelTable neon_i8mm_table() {
  KernelTable t = neon_table();
  t.name = "neon_i8mm";
  t.product(WeightKind::kInt8) = MatrixProduct::gemm;
  return t;
}

PeakLoop neon_i8mm_peak() { return {matrix_peak, 24 * 32 * 2}; }

}  // namespace octavo
