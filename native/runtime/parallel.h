// Threads. A job runs its phases one after another, each on every thread; a phase begins when the one
// before has ended on all of them. Beside PyTorch the threads are those of its OpenMP runtime, alone a
// small pool of ours: two pools in one process would fight for the cores.
// docs/notes/processors.md: "A team of threads never changes its size"
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

// How many of `threads` a job of that much work on one thread pays for, each of its phases alike.
int earned_threads(int threads, double microseconds, double phases = 1.0);

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

// docs/notes/processors.md: "A team waits in place"
// Runs leader(data) on the calling thread. Calls of `parallel` in it use up to `threads` threads that are there
// already and wait in place: those that a job does not ask for are not disturbed. What leader throws reaches the
// caller. Within a team, and in a call that has a Host, it only calls leader.
void with_team(int threads, void (*leader)(void*), void* data);

// The same for a callable f().
template <class F>
void with_team(int threads, F& f) {
  with_team(threads, [](void* data) { (*static_cast<F*>(data))(); }, &f);
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
