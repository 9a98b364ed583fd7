#include "runtime/parallel.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <cstring>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

#include "runtime/host.h"

namespace octavo {
namespace {

std::atomic<int> wanted_threads{1};

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

template <class Ready>
void spin_until(Ready ready) {
  for (int i = 0; !ready(); ++i)
    if (i < kSpins) pause_cpu();
    else std::this_thread::yield();
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
  int threads = 0;  // of our pool
  Barrier barrier{};
  void work(int thread, int n) {
    for (int p = 0; p < phases; ++p) {
      if (p > 0 && n > 1) barrier.wait(n);
      phase(data, p, thread, n);
    }
  }
};

// GNU's OpenMP runtime, if the process has loaded one (PyTorch's wheel brings its own copy).
struct OpenMp {
  void (*parallel)(void (*)(void*), void*, unsigned, unsigned) = nullptr;
  int (*thread_num)() = nullptr;
  int (*num_threads)() = nullptr;
  int (*in_parallel)() = nullptr;
  explicit operator bool() const { return parallel && thread_num && num_threads && in_parallel; }
};

OpenMp openmp_of(void* handle) {
  OpenMp found;
  found.parallel = reinterpret_cast<decltype(found.parallel)>(dlsym(handle, "GOMP_parallel"));
  found.thread_num = reinterpret_cast<decltype(found.thread_num)>(dlsym(handle, "omp_get_thread_num"));
  found.num_threads = reinterpret_cast<decltype(found.num_threads)>(dlsym(handle, "omp_get_num_threads"));
  found.in_parallel = reinterpret_cast<decltype(found.in_parallel)>(dlsym(handle, "omp_in_parallel"));
  return found;
}

// Only PyTorch's: another library's OpenMP (scikit-learn's, say) would be a second pool beside it.
int is_torch_openmp(dl_phdr_info* info, std::size_t, void* name) {
  const char* path = info->dlpi_name ? info->dlpi_name : "";
  const char* file = std::strrchr(path, '/');
  file = file ? file + 1 : path;
  if (std::strncmp(file, "libgomp", 7) != 0) return 0;
  *static_cast<std::string*>(name) = path;
  return std::strstr(path, "torch") != nullptr;  // 1 ends the search
}

int has_torch(dl_phdr_info* info, std::size_t, void*) {
  return info->dlpi_name && std::strstr(info->dlpi_name, "libtorch_cpu") != nullptr;
}

// In a forked child GNU's OpenMP waits for threads that only the parent has, for ever: there our own
// pool, made anew, does the work.
std::atomic<bool> forked{false};

void forget_threads();  // in the child
void watch_forks() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, forget_threads); });
}

// Looked for until it is there: torch may be imported after us. Finding out costs some microseconds,
// so it happens when the number of threads is set, and now and then when our own pool is used.
std::atomic<const OpenMp*> openmp{nullptr};

void find_host() {
  static std::mutex lock;
  std::lock_guard<std::mutex> guard(lock);
  if (forked.load() || openmp.load(std::memory_order_acquire) || !dl_iterate_phdr(has_torch, nullptr)) return;
  std::string path;
  dl_iterate_phdr(is_torch_openmp, &path);
  if (path.empty()) return;
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (!handle) return;
  static OpenMp found;
  found = openmp_of(handle);
  if (!found) return;
  watch_forks();
  openmp.store(&found, std::memory_order_release);
}

struct HostJob {
  const OpenMp* omp;
  Job job;
};

// Every thread of the host's team comes here at once; the team may be smaller than asked.
void host_thread(void* data) {
  auto* h = static_cast<HostJob*>(data);
  h->job.work(h->omp->thread_num(), h->omp->num_threads());
}

// Our own threads: they wait in place for a moment after each job, then sleep.
class Pool {
 public:
  // False where the pool is busy with another caller's job: the caller then works alone.
  bool run(int threads, int phases, Phase phase, void* data) {
    std::unique_lock<std::mutex> mine(busy_, std::try_to_lock);
    if (!mine) return false;
    const int helpers = grow(threads - 1);
    Job job{phase, data, phases, helpers + 1};
    running_.store(helpers, std::memory_order_relaxed);
    for (int i = 0; i < helpers; ++i) workers_[i].job.store(&job, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) {
      std::lock_guard<std::mutex> lock(sleep_);
      wake_.notify_all();
    }
    job.work(0, job.threads);
    spin_until([&] { return running_.load(std::memory_order_acquire) == 0; });
    return true;
  }

 private:
  struct Worker {
    alignas(64) std::atomic<Job*> job{nullptr};  // taken by the worker, given by run
  };

  // Up to `count` workers; fewer where the system has no more threads.
  int grow(int count) {
    while (static_cast<int>(workers_.size()) < count) {
      workers_.emplace_back();
      try {
        std::thread([this, &me = workers_.back(), thread = static_cast<int>(workers_.size())] {
          serve(me, thread);
        }).detach();
      } catch (const std::system_error&) {
        workers_.pop_back();
        break;
      }
    }
    return static_cast<int>(workers_.size()) < count ? static_cast<int>(workers_.size()) : count;
  }

  void serve(Worker& me, int thread) {
    for (;;) {
      const auto given = [&] { return me.job.load(std::memory_order_seq_cst) != nullptr; };
      for (int i = 0; i < kSpins && !given(); ++i) pause_cpu();
      if (!given()) {
        std::unique_lock<std::mutex> lock(sleep_);
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
        wake_.wait(lock, given);
        sleepers_.fetch_sub(1, std::memory_order_seq_cst);
      }
      Job* job = me.job.load(std::memory_order_acquire);
      me.job.store(nullptr, std::memory_order_relaxed);
      job->work(thread, job->threads);
      running_.fetch_sub(1, std::memory_order_acq_rel);
    }
  }

  std::mutex busy_, sleep_;
  std::condition_variable wake_;
  std::deque<Worker> workers_;  // a deque: workers keep their addresses
  alignas(64) std::atomic<int> running_{0};
  alignas(64) std::atomic<int> sleepers_{0};
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

void forget_threads() {
  forked.store(true);
  openmp.store(nullptr, std::memory_order_release);
  pool.store(nullptr, std::memory_order_release);
}

}  // namespace

int num_threads() { return wanted_threads.load(std::memory_order_relaxed); }

void set_num_threads(int threads) {
  wanted_threads.store(threads < 1 ? 1 : threads, std::memory_order_relaxed);
  find_host();
}

namespace {

// That this thread may run on: hardware_concurrency counts those of the machine.
std::size_t cores() {
#ifdef __linux__
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return static_cast<std::size_t>(std::max(1, CPU_COUNT(&allowed)));
#endif
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace

int threads_ahead_of_time(std::size_t chunks) {
  if (chunks < 2) return 1;
  return static_cast<int>(std::max<std::size_t>(1, std::min<std::size_t>({cores(), chunks, 8})));
}

const char* thread_backend() {
  if (num_threads() < 2) return "none";
  return openmp.load(std::memory_order_acquire) ? "openmp" : "pool";
}

double phase_microseconds() {
  const Host* lender = host();
  return lender ? lender->phase_microseconds() : 0.7;
}

void parallel(int threads, int phases, Phase phase, void* job) {
  if (Host* lender = threads > 1 ? host() : nullptr) {
    lender->parallel(threads, phases, phase, job);
    return;
  }
  if (threads > 1) {
    static std::atomic<unsigned> calls{0};
    if (!openmp.load(std::memory_order_relaxed) && calls.fetch_add(1, std::memory_order_relaxed) % 256 == 0) find_host();
    if (const OpenMp* omp = openmp.load(std::memory_order_acquire)) {
      if (!omp->in_parallel()) {
        HostJob h{omp, {phase, job, phases}};
        omp->parallel(host_thread, &h, static_cast<unsigned>(threads), 0);
        return;
      }
    } else if (our_pool().run(threads, phases, phase, job)) {
      return;
    }
  }
  for (int p = 0; p < phases; ++p) phase(job, p, 0, 1);
}

}  // namespace octavo
