// What the silicon allows, measured: the bounds that benchmarks hold kernels against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace octavo {

// 1e9 operations a second (two a multiply-accumulate) of an instruction set's int8 dot product on one
// core, from a loop that touches only registers. 0 for a name without such a loop.
double peak_gops(const std::string& isa, double seconds);

// 1e9 bytes a second of one plain read of `bytes` bytes.
double read_gbps(const std::uint8_t* data, std::size_t bytes, int threads);

}  // namespace octavo
