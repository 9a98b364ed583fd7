// AVX2 with FMA and F16C, no VNNI: exact int8 products through vpmaddubsw (product_avx2.h).
#include "contract/tables.h"
#include "isa/fill_table.h"
#include "isa/product_avx2.h"
#include "isa/product_groups_avx2.h"
#include "isa/quantize_groups.h"
#include "isa/quantize_rows_avx2.h"
#include "isa/transpose_words_avx2.h"
#include "isa/vector_avx2.h"

namespace octavo {

KernelTable avx2_table() {
  KernelTable t{};
  t.name = "avx2";
  t.bytes_per_input = kCellBytes / kCellK;
  t.rows_per_weight_read = 16;
  t.quantize_rows = Avx2Rows<CellWriter>::quantize;
  t.panel_rows = Avx2Rows<CellWriter>::panel;
  t.quantize_groups = GroupRows<Avx2>::quantize;
  t.product(WeightKind::kInt8) = Product<Avx2Dot>::gemm;
  t.product(WeightKind::kGroups4) = gemm_of_groups<Avx2Groups, 4>;
  t.product(WeightKind::kGroups8) = gemm_of_groups<Avx2Groups, 8>;
  fill_table<Avx2, Avx2Words>(t);
  return t;
}

PeakLoop avx2_peak() { return {madd_peak, 10 * 32 * 2}; }

}  // namespace octavo
