// AVX-512 with VNNI; with AVX512_BF16 where the processor has it.
#include "contract/tables.h"
#include "isa/convolution_avx512.h"
#include "isa/fill_table.h"
#include "isa/pairs_avx512.h"
#include "isa/product_vnni_avx512.h"
#include "isa/product_groups_vnni_avx512.h"
#include "isa/quantize_groups.h"
#include "isa/quantize_rows_vnni_avx512.h"
#include "isa/transpose_words_avx512.h"
#include "isa/vector_avx512.h"
#include "runtime/cpu.h"

namespace octavo {
KernelTable avx512vnni_table() {
  KernelTable t{};
  t.name = "avx512vnni";
  t.bytes_per_input = 1;
  t.rows_per_weight_read = 16;
  t.quantize_rows = quantize_rows;
  t.panel_rows = panel_rows;
  t.quantize_groups = GroupRows<Avx512>::quantize;
  t.product(WeightKind::kInt8) = Product<Avx512Vnni>::gemm;
  t.product(WeightKind::kGroups4) = gemm_of_groups<Avx512Groups, 4>;
  t.product(WeightKind::kGroups8) = gemm_of_groups<Avx512Groups, 8>;
  fill_table<Avx512, Avx512Words>(t);
  t.quantize_pixels = quantize_pixels_avx512;
  t.transpose = transpose_avx512;
  if (has_bfloat16_products() && pairs_are_exact()) {
    t.bfloat16_instruction = true;
    t.attention_pairs = AttentionPanels<Avx512Pairs>::attention<true>;
    t.pair_rows = pair_rows<Avx512Pairs>;
  }
  return t;
}

PeakLoop avx512vnni_peak() { return peak_of<Avx512Vnni, 7, 4>(); }

}  // namespace octavo
