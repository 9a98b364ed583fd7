// What threads that do not run when they are wanted have cost of late. Other programs may have the processors, and
// OpenMP's threads then wait for each other milliseconds long without letting go of theirs.
// docs/notes/processors.md: "Threads are left alone where others have the processors"
#pragma once

#include <chrono>

namespace octavo {

// Microseconds that this thread's next job is expected to lose by taking several threads: 0 on a quiet machine.
double expected_delay();

// That a job waited so much longer for its threads than their work explains.
void note_delay(double microseconds);

// By the caller of a job that several threads do, around its own part. What it then waits beyond what an uneven
// share explains is a delay.
class Watch {
 public:
  void leader_done() { done_ = Clock::now(); }
  // `waited`: whether the others took more than a moment longer.
  void all_done(bool waited) const;

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now(), done_{};
};

}  // namespace octavo
