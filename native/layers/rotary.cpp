#include "layers/rotary.h"

#include "contract/tables.h"
#include "layers/work.h"
#include "runtime/arena.h"
#include "runtime/parallel.h"

namespace octavo {

void rotary(const RotaryInputs& in, int threads) {
  const std::size_t count = in.batch * in.rows;
  if (count == 0 || in.heads == 0) return;
  threads = earned_threads(threads, static_cast<double>(count * in.heads * in.width) / rate::kTurned);
  const KernelTable& t = table();
  auto part = [&](int, int thread, int all) {
    const FloatMode mode;
    const Share mine = share(count, 1, thread, all);
    for (std::size_t i = mine.begin; i < mine.end; ++i) {
      const std::size_t item = i / in.rows, row = i % in.rows;
      const std::size_t position =
          in.positions ? static_cast<std::size_t>(in.positions[item * in.position_batch + row * in.position_row]) : row;
      const std::size_t at = item * in.table_batch + position * in.table_row;
      t.rotary({in.x + item * in.x_steps.batch + row * in.x_steps.row, in.heads, in.x_steps.head, in.width, in.turned,
                in.interleaved, in.each, in.cos + at, in.sin + at,
                in.out + item * in.out_steps.batch + row * in.out_steps.row, in.out_steps.head});
    }
  };
  parallel(threads, 1, part);
}

}  // namespace octavo
