#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>

#include "runtime/system.h"

namespace octavo {
namespace {

// "max 100000", or "150000 100000": microseconds of a period, over all processors.
int quota_of(double quota, double period) {
  return quota > 0 && period > 0 ? std::max(1, static_cast<int>(std::ceil(quota / period))) : 0;
}

int quota_v2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  double quota = 0, period = 0;
  return file >> quota >> period ? quota_of(quota, period) : 0;
}

int quota_v1(const std::string& folder) {
  std::ifstream first(folder + "/cpu.cfs_quota_us"), second(folder + "/cpu.cfs_period_us");
  double quota = 0, period = 0;
  return first >> quota && second >> period ? quota_of(quota, period) : 0;
}

// Of two quotas, of which either may be missing.
int less(int a, int b) { return a && b ? std::min(a, b) : a + b; }

struct Search {
  bool (*wanted)(const char* path);
  std::string found{};
};

int visit(dl_phdr_info* info, std::size_t, void* data) {
  auto* search = static_cast<Search*>(data);
  if (!info->dlpi_name || !search->wanted(info->dlpi_name)) return 0;
  search->found = info->dlpi_name;
  return 1;  // ends the search
}

}  // namespace

void* aligned_memory(std::size_t alignment, std::size_t bytes) {
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void free_aligned(void* memory) { std::free(memory); }

void in_large_pages(void* memory, std::size_t bytes) {
  constexpr std::uintptr_t kPage = 2 << 20;
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t first = (address + kPage - 1) / kPage * kPage, last = (address + bytes) / kPage * kPage;
  if (last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

Caches caches() {
#if defined(_SC_LEVEL2_CACHE_SIZE)  // of glibc
  const auto bytes = [](int name) { return static_cast<std::size_t>(std::max(0L, sysconf(name))); };
  return {bytes(_SC_LEVEL2_CACHE_SIZE), bytes(_SC_LEVEL3_CACHE_SIZE)};
#else
  return {0, 0};
#endif
}

int all_processors() { return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)); }

int allowed_processors() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

// Of the container, and of the group of this process in it.
int paid_processors() {
  const std::string root = "/sys/fs/cgroup";
  int least = less(quota_v2(root), quota_v1(root + "/cpu"));
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);)
    if (line.rfind("0::/", 0) == 0 && line.size() > 4) least = less(least, quota_v2(root + line.substr(3)));
  return least;
}

void after_fork(void (*forget)()) { pthread_atfork(nullptr, nullptr, forget); }

bool amx_permitted() {
#if defined(SYS_arch_prctl)
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
#else
  return false;
#endif
}

std::string loaded_library(bool (*wanted)(const char* path)) {
  Search search{wanted};
  dl_iterate_phdr(visit, &search);
  return search.found;
}

void* function_of(const std::string& library, const char* name) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_NOLOAD);
  return handle ? dlsym(handle, name) : nullptr;
}

}  // namespace octavo
