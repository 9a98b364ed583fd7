// A checksum of packed weights, at memory speed: what a file holds is what was written.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo {

// 64 bits of `bytes` bytes of any alignment; the same on every machine. It finds damage, not malice.
std::uint64_t checksum(const void* data, std::size_t bytes);

}  // namespace octavo
