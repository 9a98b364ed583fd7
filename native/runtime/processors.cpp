#include "runtime/processors.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>
#include <thread>

#include "runtime/openmp.h"

namespace octavo {
namespace {

constexpr int kUnlimited = std::numeric_limits<int>::max();
constexpr unsigned kCalls = 256;  // between two questions to the system

int told() {
  const char* text = std::getenv("OCTAVO_PROCESSORS");
  return text ? std::max(0, std::atoi(text)) : 0;
}

int allowed() {
  // It knows better where it binds threads: each may then run on one processor.
  if (const OpenMp* omp = openmp()) return std::max(1, omp->num_procs());
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// "max 100000", or "150000 100000": microseconds of a period, over all processors.
int quota_of(double quota, double period) {
  return quota > 0 && period > 0 ? std::max(1, static_cast<int>(std::ceil(quota / period))) : kUnlimited;
}

int quota_v2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  double quota = 0, period = 0;
  return file >> quota >> period ? quota_of(quota, period) : kUnlimited;
}

int quota_v1(const std::string& folder) {
  std::ifstream first(folder + "/cpu.cfs_quota_us"), second(folder + "/cpu.cfs_period_us");
  double quota = 0, period = 0;
  return first >> quota && second >> period ? quota_of(quota, period) : kUnlimited;
}

// Of the container, and of the group of this process in it.
int quota() {
  const std::string root = "/sys/fs/cgroup";
  int least = std::min(quota_v2(root), quota_v1(root + "/cpu"));
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);)
    if (line.rfind("0::/", 0) == 0 && line.size() > 4) least = std::min(least, quota_v2(root + line.substr(3)));
  return least;
}

}  // namespace

int processors() {
  static const int fixed = told(), paid = quota();
  if (fixed > 0) return fixed;
  static thread_local unsigned calls = 0;
  static thread_local int count = 1;
  if (calls++ % kCalls == 0) count = allowed();
  return std::min(count, paid);
}

}  // namespace octavo
