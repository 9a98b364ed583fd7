#include "limits.h"

#include <chrono>
#include <vector>

#include "parallel.h"
#include "tables.h"

namespace octavo {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double peak_gops(const std::string& isa, double seconds) {
  const PeakLoop loop = peak_loop(isa);
  if (!loop.run) return 0.0;
  constexpr std::size_t kTurns = 20000;
  loop.run(kTurns);
  const double start = now();
  double best = 0.0, last = start;
  while (last - start < seconds) {
    loop.run(kTurns);
    const double end = now(), rate = loop.operations * kTurns / (end - last) / 1e9;
    best = rate > best ? rate : best;
    last = end;
  }
  return best;
}

double read_gbps(const std::uint8_t* data, std::size_t bytes, int threads) {
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads) * 8);
  auto read = [&](int, int thread, int count) {
    const Share part = share(bytes, 64, thread, count);
    sums[static_cast<std::size_t>(thread) * 8] = table().read(data + part.begin, part.end - part.begin);
  };
  const double start = now();
  parallel(threads, 1, read);
  return static_cast<double>(bytes) / (now() - start) / 1e9;
}

}  // namespace octavo
