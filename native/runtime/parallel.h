// Threads. A job runs its phases one after another, each on every thread; a phase begins when the one
// before has ended on all of them. Beside PyTorch the threads are those of its OpenMP runtime, alone a
// small pool of ours: two pools in one process would fight for the cores.
#pragma once

#include <cstddef>

namespace octavo {

// How many threads kernels use: 1 until set. Of the calling thread, as torch.set_num_threads is of
// the process: front ends pass their host's number.
int num_threads();
void set_num_threads(int threads);

// Threads for work of `chunks` parts that is done once, ahead of time: as many as there are cores, up to 8,
// whatever number inference is held to.
int threads_ahead_of_time(std::size_t chunks);

// Which threads do the work: "none" (one thread), "openmp" (the process's OpenMP runtime) or "pool".
const char* thread_backend();

// About what each phase of a job costs beside its work.
double phase_microseconds();

using Phase = void (*)(void* job, int phase, int thread, int threads);

// Runs phase(job, p, t, threads) for p in 0..phases-1 and t in 0..threads-1; the caller is thread 0.
// Fewer threads may come than asked: `threads` in the call says how many work. Phases must not throw.
void parallel(int threads, int phases, Phase phase, void* job);

// The same for a callable f(phase, thread, threads).
template <class F>
void parallel(int threads, int phases, F& f) {
  parallel(
      threads, phases, [](void* job, int p, int t, int n) { (*static_cast<F*>(job))(p, t, n); }, &f);
}

// [begin, end) of `count` items for one thread, in multiples of `step`.
struct Share {
  std::size_t begin, end;
};
inline Share share(std::size_t count, std::size_t step, int thread, int threads) {
  const std::size_t units = (count + step - 1) / step;
  const std::size_t begin = units * static_cast<std::size_t>(thread) / static_cast<std::size_t>(threads) * step;
  const std::size_t end = units * static_cast<std::size_t>(thread + 1) / static_cast<std::size_t>(threads) * step;
  return {begin < count ? begin : count, end < count ? end : count};
}

}  // namespace octavo
