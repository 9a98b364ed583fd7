#include "layers/row_functions.h"

#include "contract/tables.h"
#include "runtime/arena.h"
#include "runtime/parallel.h"

namespace octavo {
namespace {

// Calls row(offset of its first element, its number) for all rows of x.
template <class Row>
void for_rows(const View& x, double nanoseconds, int threads, const Row& row) {
  const Loops over(x.sizes, x.axes, {&x}, 1);
  const std::size_t rows = over.rows();
  threads = earned_threads(threads, static_cast<double>(rows * over.inner()) * nanoseconds * 1e-3);
  auto part = [&](int, int thread, int all) {
    const FloatMode mode;
    const Share mine = share(rows, 1, thread, all);
    for (std::size_t r = mine.begin; r < mine.end; ++r) row(over.at(0, r), r);
  };
  parallel(threads, 1, part);
}

}  // namespace

void softmax(const View& x, const View& out, int threads) {
  const KernelTable& t = table();
  const std::size_t n = x.last();
  if (x.count() == 0) return;
  for_rows(x, 1.0, threads, [&](std::size_t at, std::size_t row) {
    t.softmax({x.as<float>() + at, 1, n, n, out.as<float>() + row * n, n});
  });
}

void row_sums(const View& x, float by, const View& out, int threads) {
  const KernelTable& t = table();
  const std::size_t n = x.last();
  for_rows(x, 0.2, threads, [&](std::size_t at, std::size_t row) {
    t.row_sums({x.as<float>() + at, 1, n, n, by, out.as<float>() + row});
  });
}

}  // namespace octavo
