#include "runtime/openmp.h"

#include <atomic>
#include <cstring>
#include <mutex>
#include <string>

#include "runtime/system.h"

namespace octavo {
namespace {

template <class Function>
void find(const std::string& library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(function_of(library, name));
}

OpenMp openmp_of(const std::string& library) {
  OpenMp found;
  find(library, "GOMP_parallel", found.parallel);
  find(library, "omp_get_thread_num", found.thread_num);
  find(library, "omp_get_num_threads", found.num_threads);
  find(library, "omp_get_max_threads", found.max_threads);
  find(library, "omp_get_num_procs", found.num_procs);
  find(library, "omp_in_parallel", found.in_parallel);
  return found;
}

bool is_torch(const char* path) { return std::strstr(path, "libtorch_cpu") != nullptr; }

// LLVM's, which PyTorch's wheels for macOS bring, has GNU's functions too.
bool is_openmp(const char* path) {
  const char* slash = std::strrchr(path, '/');
  const char* file = slash ? slash + 1 : path;
#if defined(__APPLE__)
  if (std::strncmp(file, "libomp", 6) == 0) return true;
#endif
  return std::strncmp(file, "libgomp", 7) == 0;
}

bool is_torch_openmp(const char* path) { return is_openmp(path) && std::strstr(path, "torch") != nullptr; }

std::atomic<const OpenMp*> current{nullptr};
std::atomic<bool> forgotten{false};

}  // namespace

const OpenMp* openmp() { return current.load(std::memory_order_acquire); }

void find_openmp() {
  static std::mutex lock;
  const std::lock_guard<std::mutex> guard(lock);
  if (forgotten.load() || openmp() || loaded_library(is_torch).empty()) return;
  // Another library's OpenMP (scikit-learn's, say) would be a second pool beside PyTorch's.
  std::string path = loaded_library(is_torch_openmp);
  if (path.empty()) path = loaded_library(is_openmp);
  if (path.empty()) return;
  static OpenMp found;
  found = openmp_of(path);
  if (found) current.store(&found, std::memory_order_release);
}

void forget_openmp() {
  forgotten.store(true);
  current.store(nullptr, std::memory_order_release);
}

}  // namespace octavo
