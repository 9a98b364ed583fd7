// AVX2 with FMA and F16C, no VNNI: exact int8 products through vpmaddubsw (product_avx2.h).
#include <immintrin.h>

#include <climits>
#include <cstdint>
#include <type_traits>

#include "contract/kernels.h"
#include "contract/tables.h"

namespace octavo {
namespace {

#include "isa/vector_avx2.h"
#include "isa/activations.h"
#include "isa/epilogue.h"
#include "isa/fill_table.h"
#include "isa/quantize_rows_avx2.h"
#include "isa/product_avx2.h"

}  // namespace

KernelTable avx2_table() {
  KernelTable t{};
  t.name = "avx2";
  t.bytes_per_input = kCellBytes / kCellK;
  t.rows_per_weight_read = 16;
  t.quantize_rows = quantize_rows;
  t.panel_rows = panel_rows;
  t.gemm = madd_gemm;
  t.read = read_bytes;
  fill_shared<Avx2>(t);
  return t;
}

PeakLoop avx2_peak() { return {madd_peak, 10 * 32 * 2}; }

}  // namespace octavo
