#include "runtime/processors.h"

#include <algorithm>
#include <cstdlib>

#include "runtime/openmp.h"
#include "runtime/system.h"

namespace octavo {
namespace {

constexpr unsigned kCalls = 256;  // between two questions to the system

int told() {
  const char* text = std::getenv("OCTAVO_PROCESSORS");
  return text ? std::max(0, std::atoi(text)) : 0;
}

int allowed() {
  // It knows better where it binds threads: each may then run on one processor.
  if (const OpenMp* omp = openmp()) return std::max(1, omp->num_procs());
  const int count = allowed_processors();
  return count > 0 ? count : std::max(1, all_processors());
}

}  // namespace

int processors() {
  static const int fixed = told(), paid = paid_processors();
  if (fixed > 0) return fixed;
  static thread_local unsigned calls = 0;
  static thread_local int count = 1;
  if (calls++ % kCalls == 0) count = allowed();
  return paid > 0 ? std::min(count, paid) : count;
}

}  // namespace octavo
