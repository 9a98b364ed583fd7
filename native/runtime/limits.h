// What the silicon allows, measured: the bounds that benchmarks hold kernels against.
// docs/notes/processors.md: "What bounds the kernels"
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace octavo {

// 1e9 operations a second (two a multiply-accumulate) of an instruction set's int8 dot product on all
// `threads` together, from a loop that touches only registers: the fastest of the turns that fill `seconds`.
// 0 for a name without such a loop.
double peak_gops(const std::string& isa, double seconds, int threads);

// 1e9 bytes a second of one plain read of `bytes` bytes.
double read_gbps(const std::uint8_t* data, std::size_t bytes, int threads);

// What a layer does beside its products.
enum class Part : int { kRows, kOutputs, kLstmCells, kGruCells };

// The fastest of several turns of one part alone, in seconds, by the table in use on one core and over
// memory that was just used: `columns` inputs of each row quantized, as many sums scaled and written with a
// bias, or as many units of a cell. Throws std::bad_alloc.
double part_seconds(Part part, std::size_t rows, std::size_t columns);

}  // namespace octavo
