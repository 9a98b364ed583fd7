// What this processor can execute, as the operating system lets us use it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace octavo {

// Names among: sse2 fma f16c avx2 avx512f avx512dq avx512bw avx512vl avx512vnni avxvnni avx512bf16 amxint8
// (x86-64), neon dotprod i8mm bf16 (aarch64); empty elsewhere.
std::vector<std::string> cpu_features();

// Bytes of a core's L2 cache; 1 MiB where the operating system does not say.
std::size_t l2_cache_bytes();
// Bytes of the last cache; 32 MiB where the operating system does not say.
std::size_t last_cache_bytes();

}  // namespace octavo
