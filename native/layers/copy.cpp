#include "layers/copy.h"

#include <cstring>

#include "layers/work.h"
#include "runtime/parallel.h"

namespace octavo {
namespace {

template <class T>
void copy_row(const T* from, std::size_t from_step, T* to, std::size_t to_step, std::size_t n) {
  if (from_step == 1 && to_step == 1) {
    std::memcpy(to, from, n * sizeof(T));
    return;
  }
  for (std::size_t i = 0; i < n; ++i) to[i * to_step] = from[i * from_step];
}

template <class T>
void copy_rows(const View& from, const View& to, const Loops& over, std::size_t first, std::size_t last) {
  for (std::size_t row = first; row < last; ++row)
    copy_row(from.as<T>() + over.at(1, row), over.step(1), to.as<T>() + over.at(0, row), over.step(0), over.inner());
}

}  // namespace

void copy(const View& from, const View& to, int threads) {
  if (to.count() == 0) return;
  const Loops over(to.sizes, to.axes, {&to, &from});
  const std::size_t rows = over.rows();
  threads = earned_threads(threads, static_cast<double>(to.bytes()) / rate::kCopiedBytes);
  auto part = [&](int, int thread, int all) {
    const Share mine = share(rows, 1, thread, all);
    switch (bytes_of(to.type)) {
      case 1: return copy_rows<std::uint8_t>(from, to, over, mine.begin, mine.end);
      case 4: return copy_rows<std::uint32_t>(from, to, over, mine.begin, mine.end);
      default: return copy_rows<std::uint64_t>(from, to, over, mine.begin, mine.end);
    }
  };
  parallel(threads, 1, part);
}

}  // namespace octavo
