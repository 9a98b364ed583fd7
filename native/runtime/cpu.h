// What this processor can execute, as the operating system lets us use it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace octavo {

// Names of x86_features.h (x86-64), or among neon dotprod i8mm bf16 (aarch64); empty elsewhere.
std::vector<std::string> cpu_features();

// Whether AVX512_BF16 is there. OCTAVO_BFLOAT16=emulated does without: for tests, the bits are the same.
bool has_bfloat16_products();

// Bytes of a core's L2 cache; 1 MiB where the operating system does not say.
std::size_t l2_cache_bytes();
// Bytes of the last cache; 32 MiB where the operating system does not say.
std::size_t last_cache_bytes();

}  // namespace octavo
