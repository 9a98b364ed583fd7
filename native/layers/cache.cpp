#include "layers/cache.h"

#include <algorithm>
#include <cstring>

#include "layers/work.h"
#include "runtime/parallel.h"

namespace octavo {

void append_rows(const CacheInputs& in, int threads) {
  const std::size_t items = in.batch * in.heads;
  const bool in_place = in.past == in.out;
  if (items == 0 || in.width == 0 || (in_place && !in.fresh)) return;
  const std::size_t written = in_place ? in.rows : in.out_rows;
  threads = earned_threads(threads, static_cast<double>(items * written * in.width * sizeof(float)) / rate::kCopiedBytes);
  auto part = [&](int, int thread, int all) {
    const Share mine = share(items, 1, thread, all);
    for (std::size_t i = mine.begin; i < mine.end; ++i) {
      const std::size_t item = i / in.heads, head = i % in.heads, before = in.before[item];
      float* out = in.out + i * in.out_rows * in.width;
      if (!in_place && before > 0) std::memcpy(out, in.past + i * in.past_rows * in.width, before * in.width * sizeof(float));
      const float* fresh = in.fresh ? in.fresh + item * in.steps.batch + head * in.steps.head : nullptr;
      for (std::size_t row = 0; fresh && row < in.rows; ++row)
        std::memcpy(out + (before + row) * in.width, fresh + row * in.steps.row, in.width * sizeof(float));
      if (!in_place) std::fill(out + (before + in.rows) * in.width, out + in.out_rows * in.width, 0.0f);
    }
  };
  parallel(threads, 1, part);
}

}  // namespace octavo
