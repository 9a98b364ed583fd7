// AVX-512 with VNNI: vpdpbusd multiplies 64 uint8 by 64 int8 and adds exactly in int32.
//
// The accumulators go through inline assembly: GCC 12 spills those of _mm512_dpbusd_epi32 on every
// iteration, which halves the speed.
#include <immintrin.h>

#include <climits>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "runtime/cpu.h"
#include "contract/kernels.h"
#include "contract/tables.h"

namespace octavo {
namespace {

#include "isa/vector_avx512.h"
#include "isa/activations.h"
#include "isa/epilogue.h"
#include "isa/fill_table.h"
#include "isa/quantize_rows_avx512.h"
#include "isa/product_tile.h"
#include "isa/product_vnni.h"

}  // namespace

KernelTable avx512vnni_table() {
  KernelTable t{};
  t.name = "avx512vnni";
  t.bytes_per_input = 1;
  t.rows_per_weight_read = 16;
  t.quantize_rows = quantize_rows;
  t.panel_rows = panel_rows;
  t.gemm = vnni_gemm;
  t.read = read_bytes;
  fill_shared<Avx512>(t);
  return t;
}

PeakLoop avx512vnni_peak() { return {vnni_peak, 28 * 64 * 2}; }

}  // namespace octavo
