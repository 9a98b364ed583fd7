// Products of rows with rows of a table that indices name, as relative positions have them in attention.
#pragma once

#include <cstddef>

#include "layers/program_values.h"

namespace octavo {

// What indices (int64, of any axes) name of `size` places, negative ones counted from the end: begin..end, empty
// where there are no indices. Throws std::invalid_argument for one that is outside.
struct Span {
  std::size_t begin = 0, end = 0;
};
Span span_of(const View& indices, std::size_t size);

// out[.., s, t] = a[.., s, :] . table[.., index[.., s, t], :], or (`transposed`) to out[.., t, s]: the bits that
// float_matmul gives. Only the rows of the table in `span`, that of the indices, are read. All are of
// the same number of axes, three or four; axes of a, table and index before the last two repeat where they are 1.
void gathered_product(const View& a, const View& table, const View& index, const Span& span, bool transposed, const View& out, int threads);

}  // namespace octavo
