// The packed layouts of weights: the same for every instruction set, and on disk. That of int8 is blocks
// [ceil(n/16)][ceil(k/4)][16][4], zero padded; those of groups are GroupBlocks (contract/kernels.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "contract/kernels.h"
#include "contract/tables.h"
#include "runtime/parallel.h"

namespace octavo {

// The format of that name: "int8", "int4-32", "int8-128-affine", "int4-32-minimum" ... Throws std::invalid_argument, which says which there are.
WeightFormat weight_format(const std::string& name);

// Bytes of a packed [n, k].
std::size_t packed_bytes(std::size_t n, std::size_t k, const WeightFormat& format = WeightFormat::kInt8);

// A weight in groups, of outputs (rows) and inputs: w = scale * (q - zero), or scale * q + minimum.
template <class T>
struct Grouped {
  T* q;                                      // uint8 [n, k]
  std::conditional_t<std::is_const_v<T>, const std::uint16_t, std::uint16_t>* scale;  // float16 [n, groups]
  T* zero;                                   // uint8 [n, groups], or float16 minima as bytes [n, groups * 2]; null without
};
void pack_groups(const Grouped<const std::uint8_t>& from, std::size_t n, std::size_t k, const WeightFormat& format, std::int8_t* packed);
void unpack_groups(const std::int8_t* packed, std::size_t n, std::size_t k, const WeightFormat& format, const Grouped<std::uint8_t>& to);

// int8: from rows of `stride` bytes, and back. `packed` is aligned to kAlign.
void pack(const std::int8_t* q, std::size_t n, std::size_t k, std::size_t stride, std::int8_t* packed);
void unpack(const std::int8_t* packed, std::size_t n, std::size_t k, std::size_t stride, std::int8_t* q);

// Whether a weight's blocks go past the caches to `packed`.
bool streams(std::size_t n, std::size_t k, const std::int8_t* packed);

// One row of blocks: the `columns` rows of q that it holds, at most 16, of `stride` bytes, and of each `k`
// inputs. `streamed`: as `streams` says; for_each_block ends it.
void pack_block(const KernelTable& t, const std::int8_t* q, std::size_t stride, std::size_t columns, std::size_t k, std::int8_t* to, bool streamed);

// Calls work(first, columns, thread) for every row of blocks of n columns; `streamed`: ends the streams.
template <class Work>
void for_each_block(std::size_t n, int threads_asked, bool streamed, const Work& work) {
  const KernelTable& kernels = table();  // it throws where OCTAVO_ISA names none: not within the threads
  auto some = [&](int, int thread, int threads) {
    const Share mine = share(n, kBlockN, thread, threads);
    for (std::size_t first = mine.begin; first < mine.end; first += kBlockN)
      work(first, mine.end - first < kBlockN ? mine.end - first : kBlockN, static_cast<std::size_t>(thread));
    if (streamed) kernels.end_of_streams();
  };
  parallel(threads_asked, 1, some);
}

// Sections of a weight's column sums: groups, or chunks of kChunkK. At least one.
std::size_t sections(std::size_t k, std::size_t group);

// An entry of Weight::colsum of a chunk: two int16 of the negated sum, low + 128 high.
std::int32_t column_pair(std::int32_t sum);

// Weight::colsum for every section. `zero` is Weight::zero.
void column_sums(const std::int8_t* packed, std::size_t n, std::size_t k, std::size_t group, const std::int32_t* zero, std::int32_t* colsum);

}  // namespace octavo
