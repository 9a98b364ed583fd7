// Threads that wait in place for jobs, each on memory of its own: a job disturbs only those that it takes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <thread>

#include "runtime/parallel.h"

namespace octavo {

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// About 20 to 50 us of waiting in place before a thread yields or sleeps: longer than the gap between
// two layers of a model, shorter than anyone notices.
constexpr int kSpins = 2000;

// A turn of waiting in place, by a pause of the processor, then by giving it to whoever wants it.
inline void wait_a_turn(int turn) {
  if (turn < kSpins) pause_cpu();
  else std::this_thread::yield();
}

// Whether it took more than a moment.
template <class Ready>
bool spin_until(Ready ready) {
  int turn = 0;
  for (; !ready(); turn += turn < kSpins) wait_a_turn(turn);
  return turn == kSpins;
}

// All threads of a job pass together.
class Barrier {
 public:
  void wait(int threads) {
    const int turn = turn_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads) {
      arrived_.store(0, std::memory_order_relaxed);
      turn_.store(turn + 1, std::memory_order_release);
      return;
    }
    spin_until([&] { return turn_.load(std::memory_order_acquire) != turn; });
  }

 private:
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<int> turn_{0};
};

struct Job {
  Phase phase;
  void* data;
  int phases;
  Barrier barrier{};

  void work(int thread, int threads) {
    for (int p = 0; p < phases; ++p) {
      if (p > 0 && threads > 1) barrier.wait(threads);
      phase(data, p, thread, threads);
    }
  }
};

// One leader and its helpers. Helper 1 is thread 1 of a job, and so on; the leader is thread 0.
class Crew {
 public:
  // How long a helper waits in place, in turns, before it sleeps.
  explicit Crew(int patience) : patience_(patience) {}
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  int helpers() const { return static_cast<int>(helpers_.size()); }
  // Room for one more helper, which shall call `serve`. By the leader, between jobs. Throws std::bad_alloc.
  void add() { helpers_.emplace_back(); }
  void remove_last() { helpers_.pop_back(); }

  // By the leader: the job on `threads` threads, of which threads - 1 are helpers.
  void run(Job& job, int threads);
  // By helper 1, 2, ...: works on what it is given, until it is dismissed.
  void serve(int thread);
  // By the leader, between jobs: lets helpers 1..count go. They may still read the crew.
  void dismiss(int count);

 private:
  struct alignas(64) Helper {
    std::atomic<Job*> job{nullptr};  // taken by the helper, given by the leader
    std::atomic<bool> asleep{false};
    int threads = 0;  // of the job
    std::mutex sleep{};
    std::condition_variable wake{};
  };

  static void give(Helper& helper, Job* job, int threads);
  Job* next(Helper& me) const;

  const int patience_;
  std::deque<Helper> helpers_;  // a deque: helpers keep their addresses
  alignas(64) std::atomic<int> running_{0};
};

}  // namespace octavo
