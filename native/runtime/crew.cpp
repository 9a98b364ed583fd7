#include "runtime/crew.h"

#include "runtime/crowding.h"

namespace octavo {
namespace {

Job leave{nullptr, nullptr, 0};  // what a helper is given that shall go

}  // namespace

void Crew::give(Helper& helper, Job* job, int threads) {
  helper.threads = threads;
  helper.job.store(job, std::memory_order_seq_cst);
  if (!helper.asleep.load(std::memory_order_seq_cst)) return;
  const std::lock_guard<std::mutex> lock(helper.sleep);
  helper.wake.notify_one();
}

void Crew::run(Job& job, int threads) {
  Watch watch;
  running_.store(threads - 1, std::memory_order_relaxed);
  for (int i = 0; i < threads - 1; ++i) give(helpers_[static_cast<std::size_t>(i)], &job, threads);
  job.work(0, threads);
  watch.leader_done();
  watch.all_done(spin_until([&] { return running_.load(std::memory_order_acquire) == 0; }));
}

Job* Crew::next(Helper& me) const {
  const auto given = [&] { return me.job.load(std::memory_order_seq_cst) != nullptr; };
  for (int i = 0; i < patience_ && !given(); ++i) wait_a_turn(i);
  if (!given()) {
    std::unique_lock<std::mutex> lock(me.sleep);
    me.asleep.store(true, std::memory_order_seq_cst);
    me.wake.wait(lock, given);
    me.asleep.store(false, std::memory_order_relaxed);
  }
  Job* job = me.job.load(std::memory_order_acquire);
  me.job.store(nullptr, std::memory_order_relaxed);
  return job;
}

void Crew::serve(int thread) {
  Helper& me = helpers_[static_cast<std::size_t>(thread - 1)];
  for (;;) {
    Job* job = next(me);
    if (job == &leave) return;
    job->work(thread, me.threads);
    running_.fetch_sub(1, std::memory_order_acq_rel);
  }
}

void Crew::dismiss(int count) {
  for (int i = 0; i < count; ++i) give(helpers_[static_cast<std::size_t>(i)], &leave, 0);
}

}  // namespace octavo
