#include "runtime/openmp.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <string>

namespace octavo {
namespace {

template <class Function>
void find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
}

OpenMp openmp_of(void* handle) {
  OpenMp found;
  find(handle, "GOMP_parallel", found.parallel);
  find(handle, "omp_get_thread_num", found.thread_num);
  find(handle, "omp_get_num_threads", found.num_threads);
  find(handle, "omp_get_max_threads", found.max_threads);
  find(handle, "omp_get_num_procs", found.num_procs);
  find(handle, "omp_in_parallel", found.in_parallel);
  return found;
}

// Only PyTorch's: another library's OpenMP (scikit-learn's, say) would be a second pool beside it.
int is_torch_openmp(dl_phdr_info* info, std::size_t, void* name) {
  const char* path = info->dlpi_name ? info->dlpi_name : "";
  const char* file = std::strrchr(path, '/');
  file = file ? file + 1 : path;
  if (std::strncmp(file, "libgomp", 7) != 0) return 0;
  *static_cast<std::string*>(name) = path;
  return std::strstr(path, "torch") != nullptr;  // 1 ends the search
}

int has_torch(dl_phdr_info* info, std::size_t, void*) {
  return info->dlpi_name && std::strstr(info->dlpi_name, "libtorch_cpu") != nullptr;
}

std::atomic<const OpenMp*> current{nullptr};
std::atomic<bool> forgotten{false};

}  // namespace

const OpenMp* openmp() { return current.load(std::memory_order_acquire); }

void find_openmp() {
  static std::mutex lock;
  const std::lock_guard<std::mutex> guard(lock);
  if (forgotten.load() || openmp() || !dl_iterate_phdr(has_torch, nullptr)) return;
  std::string path;
  dl_iterate_phdr(is_torch_openmp, &path);
  if (path.empty()) return;
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (!handle) return;
  static OpenMp found;
  found = openmp_of(handle);
  if (found) current.store(&found, std::memory_order_release);
}

void forget_openmp() {
  forgotten.store(true);
  current.store(nullptr, std::memory_order_release);
}

}  // namespace octavo
