// Rotary positions of the rows of every head, over the table in use.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo {

struct RotaryInputs {
  std::size_t batch, heads, rows, width;
  std::size_t turned;            // of the first elements of a row: even, at most `width`; the others are copied
  bool interleaved;              // pairs of neighbours; else of elements half of `turned` apart
  bool each;                     // a row of cos and sin has one for each of `turned` elements; else for each pair
  // Elements from one to the next; those of a row lie side by side.
  struct Steps {
    std::size_t batch, head, row;
  } x_steps, out_steps;
  const float* x;
  const float *cos, *sin;
  std::size_t table_batch, table_row;
  // Which row of cos and sin is a row's: null for its own index. With these `table_batch` is 0 in most calls.
  const std::int64_t* positions;
  std::size_t position_batch, position_row;
  float* out;                    // may be x
};

// No rows, heads or items are nothing to do. Positions are valid.
void rotary(const RotaryInputs& in, int threads);

}  // namespace octavo
