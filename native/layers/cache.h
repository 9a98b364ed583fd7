// A cache of keys or values in one piece: rows that came before, and new ones behind those of each item.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo {

struct CacheInputs {
  std::size_t batch, heads, width;
  std::size_t rows;                  // new ones of each item
  const std::size_t* before;         // [batch]: rows that came before
  const float* past;                 // [batch][heads][past_rows][width]; null where nothing came before
  std::size_t past_rows;
  // Elements from one to the next, of new rows; what a head has of a row lies side by side.
  struct Steps {
    std::size_t batch, row, head;
  } steps;
  const float* fresh;                // null: the new rows are written by whoever makes them
  float* out;                        // [batch][heads][out_rows][width]; may be `past`, which then stays
  std::size_t out_rows;              // at least before + rows of every item; rows behind those are 0
};

void append_rows(const CacheInputs& in, int threads);

}  // namespace octavo
