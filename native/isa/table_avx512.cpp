// AVX-512 without VNNI, as Skylake-X has it.
#include "contract/tables.h"
#include "isa/convolution_avx512.h"
#include "isa/fill_table.h"
#include "isa/product_avx512.h"
#include "isa/product_groups_avx512.h"
#include "isa/quantize_groups.h"
#include "isa/quantize_rows_avx2.h"
#include "isa/transpose_words_avx512.h"
#include "isa/vector_avx512.h"

namespace octavo {

KernelTable avx512_table() {
  KernelTable t{};
  t.name = "avx512";
  t.bytes_per_input = kCellBytes / kCellK;
  t.rows_per_weight_read = 16;
  t.quantize_rows = Avx2Rows<CellWriter>::quantize;
  t.panel_rows = Avx2Rows<CellWriter>::panel;
  t.quantize_groups = GroupRows<Avx512>::quantize;
  t.product(WeightKind::kInt8) = Product<Avx512Dot>::gemm;
  t.product(WeightKind::kGroups4) = gemm_of_groups<Avx512PairGroups, 4>;
  t.product(WeightKind::kGroups8) = gemm_of_groups<Avx512PairGroups, 8>;
  fill_table<Avx512, Avx512Words>(t);
  t.quantize_pixels = quantize_pixels_avx512;
  t.transpose = transpose_avx512;
  return t;
}

PeakLoop avx512_peak() { return {wide_madd_peak, 24 * 64 * 2}; }

}  // namespace octavo
