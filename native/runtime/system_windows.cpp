#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <malloc.h>
#include <windows.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/system.h"

namespace octavo {

// aligned_alloc is missing: free() could not tell its memory from malloc's.
void* aligned_memory(std::size_t alignment, std::size_t bytes) { return _aligned_malloc(bytes, alignment); }

void free_aligned(void* memory) { _aligned_free(memory); }

// They need a privilege that users do not have.
void in_large_pages(void*, std::size_t) {}

Caches caches() {
  DWORD size = 0;
  GetLogicalProcessorInformationEx(RelationCache, nullptr, &size);
  std::vector<std::uint8_t> data(size);
  auto* first = reinterpret_cast<SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX*>(data.data());
  Caches found{0, 0};
  if (!size || !GetLogicalProcessorInformationEx(RelationCache, first, &size)) return found;
  for (DWORD at = 0; at < size;) {
    const auto* entry = reinterpret_cast<const SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX*>(data.data() + at);
    const CACHE_RELATIONSHIP& cache = entry->Cache;
    if (cache.Level == 2) found.second = std::max<std::size_t>(found.second, cache.CacheSize);
    if (cache.Level == 3) found.last = std::max<std::size_t>(found.last, cache.CacheSize);
    at += entry->Size;
  }
  return found;
}

int all_processors() { return static_cast<int>(GetActiveProcessorCount(ALL_PROCESSOR_GROUPS)); }

int allowed_processors() {
  DWORD_PTR process = 0, system = 0;
  if (!GetProcessAffinityMask(GetCurrentProcess(), &process, &system)) return 0;
  return __builtin_popcountll(process);  // 0 in a process of several processor groups
}

int paid_processors() { return 0; }

void after_fork(void (*)()) {}

// No kernel for Windows uses them.
bool amx_permitted() { return false; }

std::string loaded_library(bool (*)(const char*)) { return {}; }

void* function_of(const std::string&, const char*) { return nullptr; }

}  // namespace octavo
