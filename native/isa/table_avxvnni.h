// What both encodings of VNNI on 256 bits fill a table with.
#pragma once

#include "contract/tables.h"
#include "isa/fill_table.h"
#include "isa/product_avxvnni.h"
#include "isa/product_groups_avxvnni.h"
#include "isa/quantize_groups.h"
#include "isa/quantize_rows_avx2.h"
#include "isa/transpose_words_avx2.h"
#include "isa/vector_avx2.h"

namespace octavo {
namespace {

template <Encoding encoding>
KernelTable vnni256_table(const char* name) {
  KernelTable t{};
  t.name = name;
  t.bytes_per_input = 1;
  t.rows_per_weight_read = 16;
  t.quantize_rows = Avx2Rows<ByteWriter>::quantize;
  t.panel_rows = Avx2Rows<ByteWriter>::panel;
  t.quantize_groups = GroupRows<Avx2>::quantize;
  t.product(WeightKind::kInt8) = Product<AvxVnni<encoding>>::gemm;
  t.product(WeightKind::kGroups4) = gemm_of_groups<AvxVnniGroups<encoding>, 4>;
  t.product(WeightKind::kGroups8) = gemm_of_groups<AvxVnniGroups<encoding>, 8>;
  fill_table<Avx2, Avx2Words>(t);
  return t;
}

}  // namespace
}  // namespace octavo
