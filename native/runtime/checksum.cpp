#include "runtime/checksum.h"

#include <cstring>

namespace octavo {
namespace {

constexpr std::uint64_t kMultiplier = 0x9e3779b97f4a7c15;  // odd: a step loses nothing of what came before
constexpr std::size_t kLanes = 8;

std::uint64_t step(std::uint64_t state, std::uint64_t word) {
  const std::uint64_t mixed = (state ^ word) * kMultiplier;
  return mixed ^ (mixed >> 29);
}

std::uint64_t word_at(const unsigned char* p, std::size_t bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, p, bytes);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  word = __builtin_bswap64(word);
#endif
  return word;
}

}  // namespace

// Lanes side by side, because a step waits for its multiplication.
std::uint64_t checksum(const void* data, std::size_t bytes) {
  const auto* p = static_cast<const unsigned char*>(data);
  std::uint64_t lane[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) lane[i] = i + 1;
  std::size_t left = bytes;
  for (; left >= 8 * kLanes; left -= 8 * kLanes, p += 8 * kLanes)
    for (std::size_t i = 0; i < kLanes; ++i) lane[i] = step(lane[i], word_at(p + 8 * i, 8));
  std::uint64_t all = bytes;
  for (std::size_t i = 0; i < kLanes; ++i) all = step(all, lane[i]);
  for (; left > 0; left -= left < 8 ? left : 8, p += 8) all = step(all, word_at(p, left < 8 ? left : 8));
  return step(all, 0);
}

}  // namespace octavo
