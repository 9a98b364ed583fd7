// Written from Apple's documentation, and compiled and linked against its interfaces; not run on a Mac.
#include <dlfcn.h>
#include <mach-o/dyld.h>
#include <pthread.h>
#include <sys/sysctl.h>

#include <cstdint>
#include <cstdlib>

#include "runtime/system.h"

namespace octavo {
namespace {

// An integer of 32 or 64 bits; 0 where this Mac has none of that name.
std::size_t number(const char* name) {
  std::uint64_t value = 0;  // little-endian: half of it may be written
  std::size_t size = sizeof value;
  return sysctlbyname(name, &value, &size, nullptr, 0) == 0 ? static_cast<std::size_t>(value) : 0;
}

std::size_t either(const char* name, const char* otherwise) {
  const std::size_t found = number(name);
  return found ? found : number(otherwise);
}

}  // namespace

void* aligned_memory(std::size_t alignment, std::size_t bytes) {
  void* memory = nullptr;
  return posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
}

void free_aligned(void* memory) { std::free(memory); }

// macOS has none of its own accord, and Apple's processors have pages of 16 kB.
void in_large_pages(void*, std::size_t) {}

// perflevel0 are the fast cores; a Mac of Intel's has no levels. Apple's last cache, which the GPU shares, has no name here.
Caches caches() {
  const std::size_t second = either("hw.perflevel0.l2cachesize", "hw.l2cachesize");
  const std::size_t third = either("hw.perflevel0.l3cachesize", "hw.l3cachesize");
  return {second, third ? third : second};
}

int all_processors() { return static_cast<int>(number("hw.logicalcpu")); }

// The fast cores: macOS binds no threads to any, and a job ends with its slowest thread.
int allowed_processors() { return static_cast<int>(either("hw.perflevel0.logicalcpu", "hw.logicalcpu")); }

int paid_processors() { return 0; }

void after_fork(void (*forget)()) { pthread_atfork(nullptr, nullptr, forget); }

bool amx_permitted() { return false; }

std::string loaded_library(bool (*wanted)(const char* path)) {
  const std::uint32_t count = _dyld_image_count();
  for (std::uint32_t i = 0; i < count; ++i) {
    const char* path = _dyld_get_image_name(i);  // null where another thread unloads one meanwhile
    if (path && wanted(path)) return path;
  }
  return {};
}

void* function_of(const std::string& library, const char* name) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_NOLOAD);
  return handle ? dlsym(handle, name) : nullptr;
}

}  // namespace octavo
