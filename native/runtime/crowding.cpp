#include "runtime/crowding.h"

#include <algorithm>
#include <cmath>

namespace octavo {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kWeight = 1.0 / 8;      // of the newest delay: a single one says little
constexpr double kHalfLife = 20e3;       // microseconds: jobs that were kept to one thread try again
constexpr double kNegligible = 0.5;      // microseconds
constexpr double kLongWait = 200.0;      // microseconds: no shorter wait is a delay
constexpr double kUneven = 3.0;          // times the caller's own part that others may take

double microseconds(Clock::duration d) { return std::chrono::duration<double, std::micro>(d).count(); }

struct Expected {
  double microseconds = 0.0;
  Clock::time_point at{};
};
thread_local Expected expected;

}  // namespace

double expected_delay() {
  if (expected.microseconds == 0.0) return 0.0;
  const Clock::time_point now = Clock::now();
  expected.microseconds *= std::exp2(-microseconds(now - expected.at) / kHalfLife);
  expected.at = now;
  if (expected.microseconds < kNegligible) expected.microseconds = 0.0;
  return expected.microseconds;
}

void note_delay(double delay) {
  const double before = expected_delay();
  if (before == 0.0 && delay <= 0.0) return;
  expected = {before + (delay - before) * kWeight, Clock::now()};
}

void Watch::all_done(bool waited) const {
  const double wait = waited ? microseconds(Clock::now() - done_) : 0.0;
  note_delay(wait < kLongWait ? 0.0 : std::max(0.0, wait - kUneven * microseconds(done_ - begin_)));
}

}  // namespace octavo
