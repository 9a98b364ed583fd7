// Advanced SIMD as every 64-bit ARM processor has it, without the dot product.
#include "contract/tables.h"
#include "isa/fill_table.h"
#include "isa/product_groups_neon_mull.h"
#include "isa/product_neon_mull.h"
#include "isa/quantize_groups.h"
#include "isa/quantize_rows_neon.h"
#include "isa/transpose_words.h"
#include "isa/vector_neon.h"

namespace octavo {

KernelTable neon_mull_table() {
  KernelTable t{};
  t.name = "neon_mull";
  t.bytes_per_input = 1;
  t.shifted_panels = true;
  t.rows_per_weight_read = 16;
  t.quantize_rows = ShiftedRows::quantize;
  t.panel_rows = ShiftedRows::panel;
  t.quantize_groups = GroupRows<Neon>::quantize;
  t.product(WeightKind::kInt8) = Product<NeonMull>::gemm;
  t.product(WeightKind::kGroups4) = gemm_of_groups<MullGroups, 4>;
  t.product(WeightKind::kGroups8) = gemm_of_groups<MullGroups, 8>;
  fill_table<Neon, AnyWords>(t);
  return t;
}

PeakLoop neon_mull_peak() { return peak_of<NeonMull, 3, 1>(); }

}  // namespace octavo
