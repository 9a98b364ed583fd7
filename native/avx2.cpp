// AVX2 with FMA and F16C, no VNNI: exact int8 products through vpmaddubsw (maddubs256.h).
#include <immintrin.h>

#include <climits>
#include <cstdint>
#include <type_traits>

#include "kernels.h"
#include "tables.h"

namespace octavo {
namespace {

#include "vec_avx2.h"
#include "elementwise.h"
#include "rows.h"
#include "shared.h"
#include "simd256.h"
#include "maddubs256.h"

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
