// AVX-VNNI: VNNI on 256 bits, in Intel's clients since Alder Lake.
#include "contract/tables.h"
#include "isa/table_avxvnni.h"

namespace octavo {

KernelTable avxvnni_table() { return vnni256_table<Encoding::kVex>("avxvnni"); }

PeakLoop avxvnni_peak() { return peak_of<AvxVnni<Encoding::kVex>, 7, 1>(); }

}  // namespace octavo
