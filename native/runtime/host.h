// What lends threads and memory to a call. Without one the threads are those of parallel.h and the
// memory is kept with the calling thread; inside ONNX Runtime both are the session's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/parallel.h"

namespace octavo {

class Host {
 public:
  virtual ~Host() = default;

  // As octavo::parallel. A phase has ended on all threads before the next one begins.
  virtual void parallel(int threads, int phases, Phase phase, void* job) = 0;

  // What it costs to begin a phase on several threads.
  virtual double phase_microseconds() const = 0;

  // At least `bytes`, aligned to kAlign, until the call ends. Throws std::bad_alloc.
  virtual std::uint8_t* memory(std::size_t bytes) = 0;
};

// The host of the call that this thread is making; null where it has none.
Host* host();

// Makes `h` this thread's host until the end of scope.
class Hosted {
 public:
  explicit Hosted(Host& h);
  ~Hosted();
  Hosted(const Hosted&) = delete;
  Hosted& operator=(const Hosted&) = delete;

 private:
  Host* before_;
};

}  // namespace octavo
