#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <stdexcept>

#include "contract/tables.h"
#include "runtime/cpu.h"
#include "runtime/system.h"

namespace octavo {
namespace {

struct Entry {
  const char* name;
  KernelTable (*make)();
  std::vector<std::string> needs;
  bool (*permitted)();
  PeakLoop (*peak)();
};

const std::vector<Entry>& entries() {  // the fastest first
  static const std::vector<Entry> all{
#if defined(OCTAVO_X86)
#if defined(OCTAVO_AMX)
      {"amx", amx_table, {"avx2", "fma", "f16c", "amxint8", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni"}, amx_permitted, amx_peak},
#endif
      {"avx512vnni", avx512vnni_table, {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni"}, nullptr, avx512vnni_peak},
      {"avxvnni", avxvnni_table, {"avx2", "fma", "f16c", "avxvnni"}, nullptr, avxvnni_peak},
      // The same by other processors' encoding: never the fastest, it is there to be asked for.
      {"avx512vnni256", avx512vnni256_table, {"avx2", "fma", "f16c", "avx512f", "avx512vl", "avx512vnni"}, nullptr, avx512vnni256_peak},
      {"avx512", avx512_table, {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq"}, nullptr, avx512_peak},
      {"avx2", avx2_table, {"avx2", "fma", "f16c"}, nullptr, avx2_peak},
#endif
#if defined(OCTAVO_ARM64)
      {"neon_i8mm", neon_i8mm_table, {"neon", "dotprod", "i8mm"}, nullptr, neon_i8mm_peak},
      {"neon", neon_table, {"neon", "dotprod"}, nullptr, neon_peak},
      {"neon_mull", neon_mull_table, {"neon"}, nullptr, neon_mull_peak},
#endif
      {"reference", reference_table, {}, nullptr, nullptr},
  };
  return all;
}

bool runnable(const Entry& entry) {
  static const std::vector<std::string> features = cpu_features();
  for (const std::string& need : entry.needs)
    if (std::find(features.begin(), features.end(), need) == features.end()) return false;
  return !entry.permitted || entry.permitted();
}

struct Table {
  const Entry* entry;
  KernelTable table;
};

// Every runnable table, made once: a pointer to one stays valid.
const std::vector<Table>& tables() {
  static const std::vector<Table> made = [] {
    std::vector<Table> list;
    for (const Entry& entry : entries())
      if (runnable(entry)) list.push_back({&entry, entry.make()});
    return list;
  }();
  return made;
}

const Table& find(const std::string& name, const char* source) {
  std::string have;
  for (const Table& t : tables()) {
    if (name == t.entry->name) return t;
    have += (have.empty() ? "" : ", ") + std::string(t.entry->name);
  }
  std::string known;
  for (const Entry& entry : entries()) known += (known.empty() ? "" : ", ") + std::string(entry.name);
  throw std::invalid_argument(std::string(source) + " is '" + name + "': this processor runs " + have +
                              " (of " + known + "); choose one of those, or leave it unset for the fastest");
}

std::atomic<const KernelTable*> current{nullptr};

}  // namespace

std::vector<std::string> runnable_tables() {
  std::vector<std::string> names;
  for (const Table& t : tables()) names.emplace_back(t.entry->name);
  return names;
}

const KernelTable& table() {
  if (const KernelTable* chosen = current.load(std::memory_order_acquire)) return *chosen;
  const char* wanted = std::getenv("OCTAVO_ISA");
  const KernelTable* chosen = wanted && *wanted ? &find(wanted, "OCTAVO_ISA").table : &tables().front().table;
  current.store(chosen, std::memory_order_release);
  return *chosen;
}

PeakLoop peak_loop(const std::string& name) {
  const Entry& entry = *find(name, "the instruction set").entry;
  return entry.peak ? entry.peak() : PeakLoop{nullptr, 0.0};
}

void use_table(const std::string& name) {
  current.store(&find(name, "the instruction set").table, std::memory_order_release);
}

}  // namespace octavo
