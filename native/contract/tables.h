// The tables that this build has, and the choice among them.
#pragma once

#include <string>
#include <vector>

#include "contract/kernels.h"

namespace octavo {

// A loop over registers alone: run(turns) makes `operations` operations a turn.
struct PeakLoop {
  void (*run)(std::size_t turns);
  double operations;
};

KernelTable reference_table();
#if defined(OCTAVO_X86)
KernelTable avx2_table();
PeakLoop avx2_peak();
KernelTable avx512_table();
PeakLoop avx512_peak();
KernelTable avxvnni_table();
PeakLoop avxvnni_peak();
KernelTable avx512vnni256_table();
PeakLoop avx512vnni256_peak();
KernelTable avx512vnni_table();
PeakLoop avx512vnni_peak();
#if defined(OCTAVO_AMX)
KernelTable amx_table();
PeakLoop amx_peak();
#endif
#endif
#if defined(OCTAVO_ARM64)
KernelTable neon_mull_table();
PeakLoop neon_mull_peak();
KernelTable neon_table();
PeakLoop neon_peak();
KernelTable neon_i8mm_table();
PeakLoop neon_i8mm_peak();
#endif

// Of a table that this processor can run; run is null for one without such a loop ("reference").
// Throws std::invalid_argument for a name not runnable.
PeakLoop peak_loop(const std::string& name);

// Names of the tables that this processor can run, the fastest first; the last is "reference".
std::vector<std::string> runnable_tables();

// The table in use: OCTAVO_ISA's, else the fastest. Throws std::invalid_argument (naming what there
// is) if OCTAVO_ISA names another; that error comes again with each call.
const KernelTable& table();

// Uses another from here on, in all threads. Throws std::invalid_argument for a name not runnable.
void use_table(const std::string& name);

}  // namespace octavo
