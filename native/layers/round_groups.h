// Weights to integers in groups, ahead of time. The definition is in docs/numbers.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"
#include "layers/quantize_weight.h"

namespace octavo {

// What of a weight [n, k] is to be rounded, and how.
struct GroupsWanted {
  const void* w;
  DType dtype;
  std::size_t n, k, stride, group;  // stride: elements from row to row
  int bits;
  bool affine, search;
  const float* importance;  // [k], of an input's squared error; finite, 0 or more
};

// q [n, k], 0 .. 2^bits - 1; scale, float16, and zero [n, groups], zero null where it is the middle; channel_scale [n].
struct GroupsFound {
  std::uint8_t* q;
  std::uint16_t* scale;
  std::uint8_t* zero;
  float* channel_scale;
};

// The sums over all weights; `bad` is the first channel that holds a NaN or an infinity, or -1: then nothing else counts.
struct GroupsRounded {
  WeightStats stats;
  std::ptrdiff_t bad;
};
GroupsRounded round_groups(const GroupsWanted& wanted, const GroupsFound& found);

}  // namespace octavo
