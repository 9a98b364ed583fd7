#include "runtime/crowding.h"

#include <chrono>
#include <cmath>

namespace octavo {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kWeight = 1.0 / 8;      // of the newest delay: a single one says little
constexpr double kHalfLife = 20e3;       // microseconds: jobs that were kept to one thread try again
constexpr double kNegligible = 0.5;      // microseconds

struct Expected {
  double microseconds = 0.0;
  Clock::time_point at{};
};
thread_local Expected expected;

}  // namespace

double expected_delay() {
  if (expected.microseconds == 0.0) return 0.0;
  const Clock::time_point now = Clock::now();
  const double passed = std::chrono::duration<double, std::micro>(now - expected.at).count();
  expected.microseconds *= std::exp2(-passed / kHalfLife);
  expected.at = now;
  if (expected.microseconds < kNegligible) expected.microseconds = 0.0;
  return expected.microseconds;
}

void note_delay(double microseconds) {
  const double before = expected_delay();
  if (before == 0.0 && microseconds <= 0.0) return;
  expected = {before + (microseconds - before) * kWeight, Clock::now()};
}

}  // namespace octavo
