#include "runtime/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "runtime/crew.h"
#include "runtime/crowding.h"
#include "runtime/host.h"
#include "runtime/openmp.h"
#include "runtime/processors.h"
#include "runtime/system.h"

namespace octavo {
namespace {

std::atomic<int> wanted_threads{1};

// How many turns helpers wait in place for the next job. Between calls they then sleep; in a team they first
// offer their processors for about a millisecond: whoever leads may have work that is for one thread.
constexpr int kPatience = kSpins, kTeamPatience = 2 * kSpins;

// Microseconds of work that earn a thread its start: with OpenMP's threads or ours, with ONNX Runtime's, and
// in a team. The first two are measured: where cores share a last cache a third of it would do; where they do
// not, more is lost below than won.
// docs/notes/processors.md: "A thread has to earn its start"
constexpr double kStart = 2.9, kHostStart = 4.0, kTeamStart = 2.0;
// What each of OpenMP's threads adds to a region, whether it works in it or not.
constexpr double kMember = 0.2;
// Where more is expected, a block has no team: its large jobs take threads, its small ones do not.
constexpr double kMostTeamDelay = 100.0;

void forget_threads();  // in the child
void watch_forks() {
  static std::once_flag once;
  std::call_once(once, [] { after_fork(forget_threads); });
}

// Finding out costs some microseconds, so it happens when the number of threads is set, and now and then
// when our own pool is used.
void find_host() {
  find_openmp();
  if (openmp()) watch_forks();
}

// One job on OpenMP's threads, or on fewer of them.
struct HostJob {
  const OpenMp* omp;
  Job& job;
  int threads;
  Watch watch{};
};

// Every thread of the host's team comes here at once; the team may be smaller than asked.
void host_thread(void* data) {
  auto* h = static_cast<HostJob*>(data);
  const int thread = h->omp->thread_num(), threads = std::min(h->threads, h->omp->num_threads());
  if (thread < threads) h->job.work(thread, threads);
  if (thread == 0) h->watch.leader_done();
}

// Our own threads.
class Pool {
 public:
  // False where the pool is busy with another caller's job, or this one's: the caller then works alone.
  bool run(int threads, Job& job) {
    if (busy_.exchange(true, std::memory_order_acquire)) return false;
    crew_.run(job, 1 + grow(threads - 1));
    busy_.store(false, std::memory_order_release);
    return true;
  }

 private:
  // Up to `count` helpers; fewer where the system has no more threads or memory.
  int grow(int count) {
    while (crew_.helpers() < count) {
      try {
        crew_.add();
      } catch (const std::bad_alloc&) {
        break;
      }
      try {
        std::thread([this, thread = crew_.helpers()] { crew_.serve(thread); }).detach();
      } catch (const std::system_error&) {
        crew_.remove_last();
        break;
      }
    }
    return std::min(crew_.helpers(), count);
  }

  std::atomic<bool> busy_{false};
  Crew crew_{kPatience};
};

// Never destroyed: its threads wait for work until the process ends. A forked child has no threads of
// its parent's pools; it forgets them and makes its own.
std::atomic<Pool*> pool{nullptr};

Pool& our_pool() {
  watch_forks();
  Pool* p = pool.load(std::memory_order_acquire);
  if (p) return *p;
  auto* fresh = new Pool;
  if (pool.compare_exchange_strong(p, fresh)) return *fresh;
  delete fresh;
  return *p;
}

// The team that this thread leads, while none of its jobs runs.
struct Team {
  Crew* crew;
  int threads;
};
thread_local Team team{nullptr, 1};

// Another team, or none, until the end of scope.
class Led {
 public:
  explicit Led(Team t) : before_(team) { team = t; }
  ~Led() { team = before_; }
  Led(const Led&) = delete;
  Led& operator=(const Led&) = delete;

 private:
  Team before_;
};

void forget_threads() {
  forget_openmp();
  team = {nullptr, 1};
  pool.store(nullptr, std::memory_order_release);
}

// OpenMP's threads where it has no more of them than may run at once: else each of its regions takes the time
// that the system needs to let all of them pass.
const OpenMp* usable_openmp() {
  static std::atomic<unsigned> calls{0};
  if (!openmp() && calls.fetch_add(1, std::memory_order_relaxed) % 256 == 0) find_host();
  const OpenMp* omp = openmp();
  return omp && omp->max_threads() <= processors() ? omp : nullptr;
}

bool in_openmp_region() {
  const OpenMp* omp = openmp();
  return omp && omp->in_parallel();
}

// Whether several threads came.
bool run_on_threads(int threads, Job& job) {
  if (team.crew) {
    const Team mine = team;
    const Led alone({nullptr, 1});
    if (mine.threads > 1) mine.crew->run(job, std::min(threads, mine.threads));
    return mine.threads > 1;
  }
  threads = std::min(threads, processors());
  if (threads < 2 || in_openmp_region()) return false;
  const OpenMp* omp = usable_openmp();
  if (!omp) return our_pool().run(threads, job);
  HostJob h{omp, job, threads};
  // As many as PyTorch's own regions have: with another number it would end threads, or begin some.
  omp->parallel(host_thread, &h, static_cast<unsigned>(std::max(threads, omp->max_threads())), 0);
  h.watch.all_done(true);
  return true;
}

}  // namespace

int num_threads() { return wanted_threads.load(std::memory_order_relaxed); }

void set_num_threads(int threads) {
  wanted_threads.store(threads < 1 ? 1 : threads, std::memory_order_relaxed);
  find_host();
}

int threads_ahead_of_time(std::size_t chunks) {
  if (chunks < 2) return 1;
  return static_cast<int>(std::min<std::size_t>({static_cast<std::size_t>(processors()), chunks, 8}));
}

const char* thread_backend() {
  if (num_threads() < 2) return "none";
  return usable_openmp() ? "openmp" : "pool";
}

double phase_microseconds() {
  const Host* lender = host();
  return lender ? lender->phase_microseconds() : 0.7;
}

int earned_threads(int threads, double microseconds, double phases) {
  if (threads < 2) return 1;
  double start = kStart, least = 0.0;
  if (host()) {
    start = kHostStart;
  } else if (team.crew) {
    threads = std::min(threads, team.threads);
    start = kTeamStart;
  } else {
    const OpenMp* omp = usable_openmp();
    threads = std::min(threads, processors());
    least = kMember * (omp ? std::max(threads, omp->max_threads()) : threads);
  }
  const double earned = microseconds - least - expected_delay();
  return static_cast<int>(std::max(1.0, std::min<double>(threads, earned / (start + (phases - 1.0) * phase_microseconds()))));
}

void parallel(int threads, int phases, Phase phase, void* job) {
  if (Host* lender = threads > 1 ? host() : nullptr) return lender->parallel(threads, phases, phase, job);
  if (threads > 1) {
    Job all{phase, job, phases};
    if (run_on_threads(threads, all)) return;
  }
  for (int p = 0; p < phases; ++p) phase(job, p, 0, 1);
}

void with_team(int threads, void (*leader)(void*), void* data) {
  if (threads < 2 || host() || team.crew || expected_delay() > kMostTeamDelay) return leader(data);
  Crew crew(kTeamPatience);
  threads = std::min(threads, processors());
  for (int t = 1; t < threads; ++t) crew.add();
  std::exception_ptr error;
  auto member = [&](int, int thread, int count) {
    if (thread > 0) return crew.serve(thread);
    try {
      const Led mine({count > 1 ? &crew : nullptr, count});
      leader(data);
    } catch (...) {
      error = std::current_exception();
    }
    crew.dismiss(count - 1);
  };
  parallel(threads, 1, member);
  if (error) std::rethrow_exception(error);
}

}  // namespace octavo
