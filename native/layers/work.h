// How long a layer's work takes on one core, as far as that decides how many threads it is given: rates a
// microsecond, of AVX512-VNNI on Zen 4. Slower cores need threads sooner; what they lose is small.
#pragma once

#include "layers/weights_in_use.h"
#include "runtime/cpu.h"

namespace octavo::rate {

constexpr double kMacs = 2.4e5;       // int8 multiply-accumulates of a layer
constexpr double kTileMacs = 4e5;     // of tile upon tile with nothing between: convolutions, products of activations
constexpr double kFloatMacs = 4e4;    // float32 multiply-accumulates, also with 16-bit weights
constexpr double kInputs = 1.1e4;     // float32 that become integers
constexpr double kFloats = 4e3;       // float32 that are read, rearranged or quantized, and written
constexpr double kNormed = 2.5e3;     // float32 that are normalized
constexpr double kTurned = 3.3e3;     // float32 that rotary positions turn
constexpr double kCopiedBytes = 2e4;  // that are copied to where they lie side by side
constexpr double kRowBytes = 1.65e4;  // of rows that a table holds here and there, read and written
constexpr double kCacheBytes = 1e5;   // of weights that lie in the L2 cache
constexpr double kMemoryBytes = 2.5e4;  // of weights that do not

// Microseconds of reading a weight once: a larger one than the L2 cache, or any where all weights together are larger
// than the last one, comes from where one core gets a fraction of what all get together.
inline double weight_microseconds(double bytes) {
  static const double cache = static_cast<double>(l2_cache_bytes());
  static const std::size_t last = last_cache_bytes();
  const bool streamed = weights_in_use.load(std::memory_order_relaxed) > last;
  return bytes / (bytes <= cache && !streamed ? kCacheBytes : kMemoryBytes);
}

}  // namespace octavo::rate
