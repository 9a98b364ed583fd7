// Which part of a weight stays in the L2 cache while rows pass, and what is prefetched meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"
#include "runtime/cpu.h"

namespace octavo {
namespace {

// Columns are taken in parts whose weights stay in the L2 cache while all rows pass: a quarter of it,
// beside rows and outputs. While one part is used, the next is prefetched.
inline std::size_t part_bytes() {
  static const std::size_t quarter = l2_cache_bytes() / 4;
  return quarter;
}
// docs/notes/processors.md: "The next part of a weight is prefetched"
constexpr std::size_t kFewBytes = 96 << 10;

struct WeightParts {
  std::size_t blocks;  // of a part
  std::size_t end;
  bool prefetched, few;

  // `width`: blocks that a kernel takes at once. Up to `few_tiles` of rows do so little with a weight
  // that it is prefetched even where it would fit the cache alone: other layers have been there since.
  WeightParts(const Weight& w, std::size_t begin, std::size_t end_, std::size_t tiles, std::size_t width, std::size_t few_tiles)
      : end(end_) {
    const std::size_t bytes = w.block_bytes() * w.blocks(), part = part_bytes(), fit = part / (w.block_bytes() + 1) / width * width;
    few = tiles <= few_tiles && bytes > kFewBytes;
    prefetched = few || bytes > 2 * part;
    // One tile of rows uses its weights once: then a part is what the kernel takes.
    blocks = few || tiles < 2 || fit < width ? width : prefetched ? fit : end_ > begin ? end_ - begin : width;
  }
  const std::int8_t* next(const Weight& w, std::size_t first) const {
    return prefetched && first + blocks < end ? w.data + (first + blocks) * w.block_bytes() : nullptr;
  }
};

// What is to be prefetched while a part is multiplied: whole blocks, one, two or four a tile.
struct Prefetch {
  const std::int8_t* next;
  std::size_t left, a_tile, bytes;

  void took(std::size_t blocks) {
    next += blocks * bytes;
    left -= blocks;
  }
};

// 48 rows at a time pass a panel of columns that is in the L1 cache, and go on along the row. A few that
// would be left do not read all weights for themselves: then the parts are even.
constexpr std::size_t kRowsAtOnce = 48, kTooFew = 8;

inline std::size_t rows_at_once(std::size_t rows) {
  const std::size_t left = rows % kRowsAtOnce, parts = (rows + kRowsAtOnce - 1) / kRowsAtOnce;
  return left && left <= kTooFew ? (rows + parts - 1) / parts : kRowsAtOnce;
}

}  // namespace
}  // namespace octavo
