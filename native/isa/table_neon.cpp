// Advanced SIMD with its dot product, as most 64-bit ARM processors since 2018 have it. What is no product is neon_mull's.
#include "contract/tables.h"
#include "isa/product_groups_neon.h"
#include "isa/product_neon.h"

namespace octavo {

KernelTable neon_table() {
  KernelTable t = neon_mull_table();
  t.name = "neon";
  t.product(WeightKind::kInt8) = Product<NeonDot>::gemm;
  t.product(WeightKind::kGroups4) = gemm_of_groups<NeonGroups, 4>;
  t.product(WeightKind::kGroups8) = gemm_of_groups<NeonGroups, 8>;
  return t;
}

PeakLoop neon_peak() { return peak_of<NeonDot, 6, 1>(); }

}  // namespace octavo
