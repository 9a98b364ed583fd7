// Threads of the pool under ThreadSanitizer: callers at once, phases that read what the one before
// wrote, teams, changes of the number of threads, forks in between. Ends with 0 where every sum is right.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

#include "runtime/parallel.h"

namespace {

constexpr int kWidth = 64, kPhases = 5;

// Plain memory: only the pool's barriers order its reads and writes.
struct Work {
  std::vector<long> from = std::vector<long>(kWidth), to = std::vector<long>(kWidth);
  int starts = 0;

  // Each phase gives every cell its two neighbours' sum, which other threads wrote in the last one.
  void operator()(int phase, int thread, int threads) {
    std::vector<long>& read = phase % 2 ? to : from;
    std::vector<long>& written = phase % 2 ? from : to;
    const octavo::Share cells = octavo::share(kWidth, 1, thread, threads);
    for (std::size_t i = cells.begin; i < cells.end; ++i) written[i] = read[(i + 1) % kWidth] + read[(i + kWidth - 1) % kWidth];
    if (thread == 0) ++starts;
  }
};

bool job(int threads) {
  Work work;
  for (long& v : work.from) v = 1;
  octavo::parallel(threads, kPhases, work);
  for (long v : work.to)
    if (v != 1L << kPhases) return false;
  return work.starts == kPhases;
}

// Jobs of all sizes in one team, with pauses in which helpers fall asleep, and within a second team.
bool jobs_of_a_team(int threads, int seed) {
  bool good = true;
  auto leader = [&] {
    for (int i = 0; i < 8; ++i) good = job(1 + (seed + i) % 6) && good;
    if (seed % 16 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    auto inner = [&] { good = job(threads) && good; };
    octavo::with_team(threads, inner);
    good = job(2) && good;
  };
  octavo::with_team(threads, leader);
  return good;
}

// What a leader throws reaches the caller, and the next team works.
bool team_that_throws(int threads) {
  bool good = true, caught = false;
  auto leader = [&] {
    good = job(threads) && good;
    throw std::runtime_error("from a leader");
  };
  try {
    octavo::with_team(threads, leader);
  } catch (const std::runtime_error&) {
    caught = true;
  }
  return caught && good;
}

bool caller(int seed, int turns) {
  bool good = true;
  for (int i = 0; i < turns; ++i) {
    good = job(1 + (seed + i) % 5) && good;
    if (i % 4 == 0) good = jobs_of_a_team(1 + (seed + i / 4) % 5, i) && good;
    if (i % 16 == seed % 16) {
      good = team_that_throws(1 + i % 4) && good;
      octavo::set_num_threads(1 + i % 3);
      good = octavo::num_threads() >= 1 && octavo::thread_backend() && good;
    }
    if (i % 50 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));  // helpers fall asleep
  }
  return good;
}

bool callers(int count, int turns) {
  std::atomic<int> bad{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t)
    threads.emplace_back([&, t] { bad += !caller(t, turns); });
  for (std::thread& t : threads) t.join();
  return bad == 0;
}

// A child that makes a pool of its own while the parent's goes on.
bool fork_between() {
  const pid_t child = fork();
  if (child == 0) _exit(caller(3, 20) ? 0 : 1);
  int status = 1;
  const bool good = caller(4, 20);
  return waitpid(child, &status, 0) == child && status == 0 && good;
}

}  // namespace

int main() {
  setenv("OCTAVO_PROCESSORS", "64", 1);  // more threads than there are processors
  bool good = true;
  for (int round = 0; round < 3; ++round) {
    good = callers(1, 300) && callers(6, 150) && good;
    good = fork_between() && good;
  }
  std::puts(good ? "pool_stress: every sum is right" : "pool_stress: WRONG SUMS");
  return good ? 0 : 1;
}
