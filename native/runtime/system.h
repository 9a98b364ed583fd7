// What the operating system is asked, and what it is asked in: one of system_linux.cpp, system_macos.cpp and
// system_windows.cpp is built.
#pragma once

#include <cstddef>
#include <string>

namespace octavo {

// Memory that begins with a multiple of `alignment`, for `free_aligned`; null where there is none left.
void* aligned_memory(std::size_t alignment, std::size_t bytes);
void free_aligned(void* memory);

constexpr std::size_t kLargeMemory = 4 << 20;  // bytes from which on large pages pay

// Asks for large pages, where there are such, for memory that is about to be written for the first time; changes
// no content.
void in_large_pages(void* memory, std::size_t bytes);

// Bytes of a core's L2 cache and of the last cache; 0 where the system does not say.
struct Caches {
  std::size_t second, last;
};
Caches caches();

// Processors of the machine, and those that the calling thread may run on; 0 where the system does not say.
int all_processors();
int allowed_processors();
// As many as the quota of this process's control group pays for; 0 where there is none.
int paid_processors();

// Calls `forget` in every child that this process forks, before it goes on.
void after_fork(void (*forget)());

// Asks for the tiles of AMX, which Linux gives only to programs that do; whether this one has them.
bool amx_permitted();

// A library that the process has loaded and whose path `wanted` accepts first; empty where there is none. Always
// empty where PyTorch has no OpenMP library with GNU's functions (Windows).
std::string loaded_library(bool (*wanted)(const char* path));
// A function of that library; null where it has none of that name.
void* function_of(const std::string& library, const char* name);

}  // namespace octavo
