// Memory read as fast as it can be, in vectors of V's size.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo {
namespace {

template <class V>
std::uint64_t read_bytes(const std::uint8_t* data, std::size_t n) {
  constexpr std::size_t kBytes = sizeof(typename V::I) < 16 ? 16 : sizeof(typename V::I);
  typedef std::uint64_t Vector __attribute__((vector_size(kBytes), aligned(1), may_alias));
  Vector x[4] = {};
  std::size_t i = 0;
  for (; i + 4 * kBytes <= n; i += 4 * kBytes)
    for (std::size_t j = 0; j < 4; ++j) x[j] ^= *reinterpret_cast<const Vector*>(data + i + j * kBytes);
  std::uint64_t all = 0;
  for (; i < n; ++i) all ^= data[i];
  const Vector both = x[0] ^ x[1] ^ x[2] ^ x[3];
  std::uint64_t words[kBytes / 8];
  __builtin_memcpy(words, &both, kBytes);
  for (const std::uint64_t word : words) all ^= word;
  return all;
}

}  // namespace
}  // namespace octavo
