// The tile of VNNI on 256 bits in both encodings, to be disassembled.
#include "isa/product_avxvnni.h"

#define TILE __attribute__((visibility("default"), noinline)) void

extern "C" TILE avxvnni_tile(const octavo::ProductTile& t) {
  octavo::Product<octavo::AvxVnni<octavo::Encoding::kVex>>::row_tile<6, 1, false>(t);
}
extern "C" TILE avx512vl_tile(const octavo::ProductTile& t) {
  octavo::Product<octavo::AvxVnni<octavo::Encoding::kEvex>>::row_tile<6, 1, false>(t);
}
