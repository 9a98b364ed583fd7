#include "layers/norm.h"

#include "contract/tables.h"
#include "layers/work.h"
#include "runtime/arena.h"
#include "runtime/parallel.h"

namespace octavo {

void norm(const NormRows& in, int threads) {
  if (in.rows == 0 || in.columns == 0) return;
  threads = earned_threads(threads, static_cast<double>(in.rows * in.columns) / rate::kNormed);
  const KernelTable& t = table();
  auto part = [&](int, int thread, int all) {
    const FloatMode mode;
    const Share mine = share(in.rows, 1, thread, all);
    NormRows some = in;
    some.x += mine.begin * in.stride;
    some.out += mine.begin * in.out_stride;
    if (in.residual) some.residual += mine.begin * in.residual_stride;
    if (in.sum) some.sum += mine.begin * in.sum_stride;
    some.rows = mine.end - mine.begin;
    t.norm_rows(some);
  };
  parallel(threads, 1, part);
}

}  // namespace octavo
