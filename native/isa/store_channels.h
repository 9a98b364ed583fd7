// Writing the channels of one quantized pixel, which may be few.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"

namespace octavo {
namespace {

// Up to 16 channels of a pixel from `channel` on. Sixteen bytes are written where the run has so many left: what is too
// much lies in channels and pixels that come after, so that the last channels of a pixel are to be written
// before its others, and pixels in their order. (Stores under a mask of bytes take 80 ns on Zen 4.)
inline void store_channels(const QuantizePixels& q, std::size_t pixel, std::size_t channel, const std::uint8_t* sixteen) {
  const std::size_t at = pixel * q.stride + channel, end = (q.pixels - 1) * q.stride + q.channels;
  std::uint8_t* to = q.to + at;
  if (end - at >= 16) {
    __builtin_memcpy(to, sixteen, 16);
    return;
  }
  const std::size_t left = q.channels - channel, n = left < 16 ? left : 16;
  for (std::size_t i = 0; i < n; ++i) to[i] = sixteen[i];
}

}  // namespace
}  // namespace octavo
