#include "pack.h"

#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace octavo {
namespace {

// Four words from each of four rows, turned: GCC's vectors exist on every processor.
typedef std::int32_t Words __attribute__((vector_size(16)));

inline Words load(const void* p) {
  Words w;
  std::memcpy(&w, p, sizeof w);
  return w;
}
inline void store(void* p, Words w) { std::memcpy(p, &w, sizeof w); }

inline void transpose(Words& a, Words& b, Words& c, Words& d) {
  const Words ab_low = __builtin_shuffle(a, b, Words{0, 4, 1, 5});
  const Words ab_high = __builtin_shuffle(a, b, Words{2, 6, 3, 7});
  const Words cd_low = __builtin_shuffle(c, d, Words{0, 4, 1, 5});
  const Words cd_high = __builtin_shuffle(c, d, Words{2, 6, 3, 7});
  a = __builtin_shuffle(ab_low, cd_low, Words{0, 1, 4, 5});
  b = __builtin_shuffle(ab_low, cd_low, Words{2, 3, 6, 7});
  c = __builtin_shuffle(ab_high, cd_high, Words{0, 1, 4, 5});
  d = __builtin_shuffle(ab_high, cd_high, Words{2, 3, 6, 7});
}

constexpr std::size_t kCell = kBlockN * kBlockK;  // bytes of one block
// Inputs of a tile. A whole cache line of each row: where rows lie a power of two apart, the lines of 16
// rows fall on each other in the first cache, and one that is left half read is fetched again.
constexpr std::size_t kTileK = 64;
constexpr std::size_t kTileCells = kTileK / kBlockK;
constexpr std::size_t kAhead = 4 * kTileK;  // rows are many streams, which the processor follows late
constexpr std::size_t kStreamed = 4 << 20;  // bytes from which results go past the caches, in whole lines

// A block's columns are the rows of q: 16 rows of 64 inputs to 16 blocks.
void pack_tile(const std::int8_t* q, std::size_t stride, std::int8_t* to) {
  for (std::size_t c = 0; c < kBlockN; c += 4)
    for (std::size_t i = 0; i < kTileK; i += 16) {
      const std::int8_t* from = q + c * stride + i;
      Words w[4] = {load(from), load(from + stride), load(from + 2 * stride), load(from + 3 * stride)};
      transpose(w[0], w[1], w[2], w[3]);
      for (std::size_t s = 0; s < 4; ++s) store(to + (i / 4 + s) * kCell + c * 4, w[s]);
    }
}

void unpack_tile(const std::int8_t* from, std::int8_t* q, std::size_t stride) {
  for (std::size_t c = 0; c < kBlockN; c += 4)
    for (std::size_t i = 0; i < kTileK; i += 16) {
      const std::int8_t* cell = from + i / 4 * kCell + c * 4;
      Words w[4] = {load(cell), load(cell + kCell), load(cell + 2 * kCell), load(cell + 3 * kCell)};
      transpose(w[0], w[1], w[2], w[3]);
      for (std::size_t r = 0; r < 4; ++r) store(q + (c + r) * stride + i, w[r]);
    }
}

// 16 bytes at aligned `to`, without reading its cache line first: a third of what memory has to move.
inline void stream(void* to, Words w) {
#if defined(__SSE2__)
  _mm_stream_si128(static_cast<__m128i*>(to), reinterpret_cast<__m128i>(w));
#else
  store(to, w);
#endif
}

inline void end_of_streams() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

inline void stream_bytes(void* to, const std::int8_t* from, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 16) stream(static_cast<std::int8_t*>(to) + i, load(from + i));
}

inline bool lines(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % kAlign == 0; }

std::size_t block_bytes(std::size_t k) { return round_up(k, kBlockK) * kBlockN; }

}  // namespace

std::size_t packed_bytes(std::size_t n, std::size_t k) { return round_up(n, kBlockN) / kBlockN * block_bytes(k); }

void pack(const std::int8_t* q, std::size_t n, std::size_t k, std::size_t stride, std::int8_t* packed) {
  const bool streamed = packed_bytes(n, k) >= kStreamed && lines(packed);
  std::int8_t cells[kTileCells * kCell];
  for (std::size_t first = 0; first < n; first += kBlockN) {
    const std::size_t columns = n - first < kBlockN ? n - first : kBlockN;
    for (std::size_t i = 0; i < k; i += kTileK) {
      const std::size_t inputs = k - i < kTileK ? k - i : kTileK;
      const std::int8_t* from = q + first * stride + i;
      std::int8_t* to = packed + first / kBlockN * block_bytes(k) + i * kBlockN;
      if (columns == kBlockN && inputs == kTileK) {
        if (i + kAhead < k)
          for (std::size_t c = 0; c < kBlockN; ++c) __builtin_prefetch(from + c * stride + kAhead);
        pack_tile(from, stride, streamed ? cells : to);
        if (streamed) stream_bytes(to, cells, sizeof cells);
        continue;
      }
      std::int8_t rows[kBlockN * kTileK] = {};
      for (std::size_t c = 0; c < columns; ++c) std::memcpy(rows + c * kTileK, from + c * stride, inputs);
      pack_tile(rows, kTileK, cells);
      std::memcpy(to, cells, round_up(inputs, kBlockK) * kBlockN);
    }
  }
  if (streamed) end_of_streams();
}

void unpack(const std::int8_t* packed, std::size_t n, std::size_t k, std::size_t stride, std::int8_t* q) {
  const bool streamed = n * k >= kStreamed && lines(q) && stride % kAlign == 0;
  std::int8_t rows[kBlockN * kTileK];
  for (std::size_t first = 0; first < n; first += kBlockN) {
    const std::size_t columns = n - first < kBlockN ? n - first : kBlockN;
    for (std::size_t i = 0; i < k; i += kTileK) {
      const std::size_t inputs = k - i < kTileK ? k - i : kTileK;
      const std::int8_t* from = packed + first / kBlockN * block_bytes(k) + i * kBlockN;
      std::int8_t* to = q + first * stride + i;
      if (columns == kBlockN && inputs == kTileK) {
        unpack_tile(from, streamed ? rows : to, streamed ? kTileK : stride);
        for (std::size_t c = 0; streamed && c < kBlockN; ++c) stream_bytes(to + c * stride, rows + c * kTileK, kTileK);
        continue;
      }
      std::int8_t cells[kTileCells * kCell] = {};
      std::memcpy(cells, from, round_up(inputs, kBlockK) * kBlockN);
      unpack_tile(cells, rows, kTileK);
      for (std::size_t c = 0; c < columns; ++c) std::memcpy(to + c * stride, rows + c * kTileK, inputs);
    }
  }
  if (streamed) end_of_streams();
}

std::int32_t column_pair(std::int32_t sum) {
  const std::int32_t c = -sum, high = c >= 0 ? c / 128 : -((-c + 127) / 128);
  return int16_pair(c - high * 128, high);
}

std::size_t sections(std::size_t k, std::size_t group) { return groups_of(k, group ? group : kChunkK); }

void column_sums(const std::int8_t* packed, std::size_t n, std::size_t k, std::size_t group, const std::int32_t* zero, std::int32_t* colsum) {
  const std::size_t step = group ? group : kChunkK, padded = round_up(n, kBlockN);
  for (std::size_t s = 0; s < sections(k, group); ++s)
    for (std::size_t first = 0; first < padded; first += kBlockN) {
      const std::int8_t* block = packed + first / kBlockN * block_bytes(k);
      std::int32_t sums[kBlockN] = {};
      const std::size_t last = (s + 1) * step < k ? (s + 1) * step : round_up(k, kBlockK);  // padding is 0
      for (std::size_t i = s * step; i < last; i += kBlockK)
        for (std::size_t c = 0; c < kBlockN; ++c) {
          const std::int8_t* cell = block + i * kBlockN + c * kBlockK;
          sums[c] += cell[0] + cell[1] + cell[2] + cell[3];
        }
      for (std::size_t c = 0; c < kBlockN; ++c)
        colsum[s * padded + first + c] = group ? int16_pair(-sums[c], zero ? zero[first + c] : 0) : column_pair(sums[c]);
    }
}

}  // namespace octavo
