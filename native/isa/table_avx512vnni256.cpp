// The table of AVX-VNNI in the encoding of AVX512VL, for servers that have AVX512-VNNI: it runs there what they have no
// prefix for, and leaves their clock where 512-bit vectors would lower it.
#include "contract/tables.h"
#include "isa/table_avxvnni.h"

namespace octavo {

KernelTable avx512vnni256_table() { return vnni256_table<Encoding::kEvex>("avx512vnni256"); }

PeakLoop avx512vnni256_peak() { return peak_of<AvxVnni<Encoding::kEvex>, 7, 1>(); }

}  // namespace octavo
