// 16 rows of 16 words of four bytes, transposed, and lines written past the caches. What an instruction set
// does itself is a struct as AnyWords; fill_table.h makes table entries of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"
#include "isa/shuffled.h"

namespace octavo {
namespace {

// Four words of four rows; strides are in bytes. GCC's vectors exist on every processor.
inline void transpose_four_rows(const void* from, std::size_t stride, void* to, std::size_t to_stride) {
  typedef std::int32_t Words __attribute__((vector_size(16)));
  Words v[4];
  for (std::size_t i = 0; i < 4; ++i) __builtin_memcpy(&v[i], static_cast<const char*>(from) + i * stride, 16);
  const Words low01 = shuffled<0, 4, 1, 5>(v[0], v[1]), high01 = shuffled<2, 6, 3, 7>(v[0], v[1]);
  const Words low23 = shuffled<0, 4, 1, 5>(v[2], v[3]), high23 = shuffled<2, 6, 3, 7>(v[2], v[3]);
  const Words turned[4] = {shuffled<0, 1, 4, 5>(low01, low23), shuffled<2, 3, 6, 7>(low01, low23),
                           shuffled<0, 1, 4, 5>(high01, high23), shuffled<2, 3, 6, 7>(high01, high23)};
  for (std::size_t i = 0; i < 4; ++i) __builtin_memcpy(static_cast<char*>(to) + i * to_stride, &turned[i], 16);
}

struct AnyWords {
  template <bool streamed>
  static void tile(const std::int8_t* from, std::size_t stride, std::int8_t* to, std::size_t to_stride, std::size_t) {
    for (std::size_t j = 0; j < 16; j += 4)
      for (std::size_t i = 0; i < 16; i += 4)
        transpose_four_rows(from + i * stride + 4 * j, stride, to + j * to_stride + 4 * i, to_stride);
  }
  static void stream_line(std::int8_t* to, const std::int8_t* from) { __builtin_memcpy(to, from, kAlign); }
  static void end_of_streams() {}
};

template <class Words>
struct WordTiles {
  template <bool streamed>
  static void tiles(TransposeWords t) {  // a copy: else what is stored might be taken for a part of it
    for (std::size_t i = 0; i < t.tiles; ++i)
      Words::template tile<streamed>(t.from + i * t.step, t.stride, t.to + i * t.to_step, t.to_stride, t.step);
  }
  static void transpose(const TransposeWords& t) { t.streamed ? tiles<true>(t) : tiles<false>(t); }

  static void stream_lines(std::int8_t* to, const std::int8_t* from, std::size_t lines) {
    for (std::size_t i = 0; i < lines; ++i) Words::stream_line(to + i * kAlign, from + i * kAlign);
  }
};

}  // namespace
}  // namespace octavo
