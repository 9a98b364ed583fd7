// Lookups in quantized embedding tables, which stay quantized: a row becomes float32 on its way out.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"

namespace octavo {

struct Indices {
  const void* data;
  bool wide;  // int64, else int32
  std::size_t count;
};

// out[i, :] = (q[indices[i], :] - zero) * scale. Throws std::out_of_range (with the position, the index
// and the number of rows) before anything is written.
void embedding_lookup(const EmbeddingTable& table, std::size_t rows, const Indices& indices, float* out,
                      std::size_t out_stride, int threads);

// The same from the packed layout of weights (pack.h), [rows, table.dim] of `format`: for a table that is an
// output layer's weight too, or of few bits. Each row's values lie 4 bytes to a cache line. Of weights in groups
// table.scale is what each row is multiplied with besides, and table.zero null: their zero points are packed too.
void packed_lookup(const EmbeddingTable& table, std::size_t rows, const Indices& indices, float* out, int threads,
                   const WeightFormat& format = {});

struct Bags {
  // Of `wide` integers as Indices: where each bag begins, ascending from 0. null: bags of `length`.
  const void* offsets;
  bool wide;
  std::size_t count;            // of bags
  bool last;                    // whether offsets hold one more: where the last bag ends
  std::size_t length;
  const float* weights;         // one for each index; null: none
  std::int64_t padding;         // this index counts for nothing; -1: none
  BagMode mode;
};

// out[b, :] = the sum, mean or largest of the rows of each bag; 0 for one without any. Throws as
// embedding_lookup does, and std::invalid_argument for offsets that do not ascend from 0 within the indices.
void embedding_bag(const EmbeddingTable& table, std::size_t rows, const Indices& indices, const Bags& bags,
                   float* out, std::size_t out_stride, int threads);

}  // namespace octavo
