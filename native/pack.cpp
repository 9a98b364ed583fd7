#include "pack.h"

#include <cstring>

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

// A block's columns are the rows of q. Inputs in whole steps of 16, all 16 columns there.
std::size_t pack_steps(const std::int8_t* q, std::size_t k, std::size_t stride, std::int8_t* to) {
  std::size_t i = 0;
  for (; i + 16 <= k; i += 16)
    for (std::size_t c = 0; c < kBlockN; c += 4) {
      const std::int8_t* from = q + c * stride + i;
      Words w[4] = {load(from), load(from + stride), load(from + 2 * stride), load(from + 3 * stride)};
      transpose(w[0], w[1], w[2], w[3]);
      for (std::size_t s = 0; s < 4; ++s) store(to + (i / 4 + s) * kCell + c * 4, w[s]);
    }
  return i;
}

std::size_t unpack_steps(const std::int8_t* from, std::size_t k, std::size_t stride, std::int8_t* q) {
  std::size_t i = 0;
  for (; i + 16 <= k; i += 16)
    for (std::size_t c = 0; c < kBlockN; c += 4) {
      const std::int8_t* cell = from + i / 4 * kCell + c * 4;
      Words w[4] = {load(cell), load(cell + kCell), load(cell + 2 * kCell), load(cell + 3 * kCell)};
      transpose(w[0], w[1], w[2], w[3]);
      for (std::size_t r = 0; r < 4; ++r) store(q + (c + r) * stride + i, w[r]);
    }
  return i;
}

inline std::size_t at(std::size_t column, std::size_t k) {
  return k / kBlockK * kCell + column * kBlockK + k % kBlockK;
}

std::size_t block_bytes(std::size_t k) { return round_up(k, kBlockK) * kBlockN; }

}  // namespace

std::size_t packed_bytes(std::size_t n, std::size_t k) { return round_up(n, kBlockN) / kBlockN * block_bytes(k); }

void pack(const std::int8_t* q, std::size_t n, std::size_t k, std::size_t stride, std::int8_t* packed) {
  for (std::size_t first = 0; first < n; first += kBlockN) {
    const std::size_t columns = n - first < kBlockN ? n - first : kBlockN;
    std::int8_t* to = packed + first / kBlockN * block_bytes(k);
    const std::int8_t* from = q + first * stride;
    const std::size_t done = columns == kBlockN ? pack_steps(from, k, stride, to) : 0;
    if (done < round_up(k, kBlockK)) std::memset(to + done * kBlockN, 0, block_bytes(k) - done * kBlockN);
    for (std::size_t c = 0; c < columns; ++c)
      for (std::size_t i = done; i < k; ++i) to[at(c, i)] = from[c * stride + i];
  }
}

void unpack(const std::int8_t* packed, std::size_t n, std::size_t k, std::size_t stride, std::int8_t* q) {
  for (std::size_t first = 0; first < n; first += kBlockN) {
    const std::size_t columns = n - first < kBlockN ? n - first : kBlockN;
    const std::int8_t* from = packed + first / kBlockN * block_bytes(k);
    std::int8_t* to = q + first * stride;
    const std::size_t done = columns == kBlockN ? unpack_steps(from, k, stride, to) : 0;
    for (std::size_t c = 0; c < columns; ++c)
      for (std::size_t i = done; i < k; ++i) to[c * stride + i] = from[at(c, i)];
  }
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
