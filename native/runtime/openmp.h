// GNU's OpenMP runtime, if the process has loaded PyTorch, whose wheel brings its own copy of it.
#pragma once

namespace octavo {

struct OpenMp {
  void (*parallel)(void (*)(void*), void*, unsigned, unsigned) = nullptr;
  int (*thread_num)() = nullptr;
  int (*num_threads)() = nullptr;
  int (*max_threads)() = nullptr;  // of a region that this thread begins
  int (*num_procs)() = nullptr;    // that this thread may run on
  int (*in_parallel)() = nullptr;
  explicit operator bool() const { return parallel && thread_num && num_threads && max_threads && num_procs && in_parallel; }
};

// Null until `find_openmp` has found it, and in a forked child.
const OpenMp* openmp();

// Looks for it until it is there: torch may be imported after us. Costs some microseconds.
void find_openmp();

// In a forked child GNU's OpenMP waits for threads that only the parent has, for ever.
void forget_openmp();

}  // namespace octavo
