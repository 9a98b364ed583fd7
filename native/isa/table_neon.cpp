// Advanced SIMD with its dot product, as most 64-bit ARM processors since 2018 have it.
#include "contract/tables.h"
#include "isa/fill_table.h"
#include "isa/product_groups_neon.h"
#include "isa/product_neon.h"
#include "isa/quantize_groups.h"
#include "isa/quantize_rows_neon.h"
#include "isa/transpose_words.h"
#include "isa/vector_neon.h"

namespace octavo {

KernelTable neon_table() {
  KernelTable t{};
  t.name = "neon";
  t.bytes_per_input = 1;
  t.shifted_panels = true;
  t.rows_per_weight_read = 16;
  t.quantize_rows = quantize_shifted_rows;
  t.panel_rows = shifted_panel_rows;
  t.quantize_groups = GroupRows<Neon>::quantize;
  t.product(WeightKind::kInt8) = Product<NeonDot>::gemm;
  t.product(WeightKind::kGroups4) = gemm_of_groups<NeonGroups, 4>;
  t.product(WeightKind::kGroups8) = gemm_of_groups<NeonGroups, 8>;
  fill_table<Neon, AnyWords>(t);
  return t;
}

PeakLoop neon_peak() { return {dot_peak, 24 * 16 * 2}; }

}  // namespace octavo
