// The packed layout of weights: blocks [ceil(n/16)][ceil(k/4)][16][4] int8, zero padded. It is the
// same for every instruction set, and the layout on disk.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels.h"

namespace octavo {

// Bytes of a packed [n, k].
std::size_t packed_bytes(std::size_t n, std::size_t k);

// From rows of `stride` bytes, and back. `packed` is aligned to kAlign.
void pack(const std::int8_t* q, std::size_t n, std::size_t k, std::size_t stride, std::int8_t* packed);
void unpack(const std::int8_t* packed, std::size_t n, std::size_t k, std::size_t stride, std::int8_t* q);

// Sections of a weight's column sums: groups, or chunks of kChunkK. At least one.
std::size_t sections(std::size_t k, std::size_t group);

// An entry of Weight::colsum of a chunk: two int16 of the negated sum, low + 128 high.
std::int32_t column_pair(std::int32_t sum);

// Weight::colsum for every section. `zero` is Weight::zero.
void column_sums(const std::int8_t* packed, std::size_t n, std::size_t k, std::size_t group, const std::int32_t* zero, std::int32_t* colsum);

}  // namespace octavo
