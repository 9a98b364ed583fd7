// AVX-512 with VNNI.
#include "contract/tables.h"
#include "isa/convolution_avx512.h"
#include "isa/fill_table.h"
#include "isa/product_vnni_avx512.h"
#include "isa/quantize_rows_avx512.h"
#include "isa/transpose_words_avx512.h"
#include "isa/vector_avx512.h"

namespace octavo {

KernelTable avx512vnni_table() {
  KernelTable t{};
  t.name = "avx512vnni";
  t.bytes_per_input = 1;
  t.rows_per_weight_read = 16;
  t.quantize_rows = quantize_rows;
  t.panel_rows = panel_rows;
  t.product(WeightFormat::kInt8) = Product<Avx512Vnni>::gemm;
  fill_table<Avx512, Avx512Words>(t);
  t.quantize_pixels = quantize_pixels_avx512;
  t.transpose = transpose_avx512;
  return t;
}

PeakLoop avx512vnni_peak() { return {vnni_peak, 28 * 64 * 2}; }

}  // namespace octavo
