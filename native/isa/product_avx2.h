// The exact int8 product on AVX2.
//
// vpmaddubsw adds pairs of uint8 x int8 products and saturates at int16, which full-range uint8 would
// reach. Panels hold |a| <= 128 (a = q - 128) and the signs as masks; w ^ mask is w or -w - 1, in
// -128..127, so a pair stays in -32768..32512. The sums start at the row's sum of |a| over negative
// a, which makes good the -1.
//
// A dot product of 32 is four instructions (vpxor, vpmaddubsw, vpmaddwd, vpaddd) that share three
// ports: 24 multiply-accumulates a cycle at most, 1.5 times FMA's 16. Five rows by 16 columns fill
// the sixteen registers: 10 sums, 2 of weights, 3 temporary ones and the constant.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"
#include "isa/epilogue.h"
#include "isa/quantize_rows_avx2.h"
#include "isa/vector_avx2.h"

namespace octavo {
namespace {

// One row, one cell, 16 columns. Inline assembly, for GCC 12 spills the sums of the intrinsics.
#define OCTAVO_MADD_CELL(acc, p, w0, w1, ones, kind)                                                       \
  do {                                                                                                     \
    __m256i low, size, mask;                                                                               \
    __asm__(                                                                                               \
        "vpbroadcastd %[m], %[mask]\n\t"                                                                   \
        "vpbroadcastd %[s], %[size]\n\t"                                                                   \
        "vpxor %[b0], %[mask], %[low]\n\t"                                                                 \
        "vpxor %[b1], %[mask], %[mask]\n\t"                                                                \
        "vpmaddubsw %[low], %[size], %[low]\n\t"                                                           \
        "vpmaddubsw %[mask], %[size], %[size]\n\t"                                                         \
        "vpmaddwd %[one], %[low], %[low]\n\t"                                                              \
        "vpmaddwd %[one], %[size], %[size]\n\t"                                                            \
        "vpaddd %[low], %[c0], %[c0]\n\t"                                                                  \
        "vpaddd %[size], %[c1], %[c1]"                                                                     \
        : [c0] "+x"((acc)[0]), [c1] "+x"((acc)[1]), [low] "=&x"(low), [size] "=&x"(size), [mask] "=&x"(mask) \
        : [s] "m"(*reinterpret_cast<const std::uint8_t(*)[4]>(p)),                                         \
          [m] "m"(*reinterpret_cast<const std::uint8_t(*)[4]>((p) + 4)), [b0] kind(w0), [b1] kind(w1),     \
          [one] "x"(ones));                                                                                \
  } while (false)

// Weights are asked for this many bytes ahead: processors do not on their own across pages, and few
// rows wait for weights that are in no cache near (measured: 1.3 to 1.8 times the speed at 1 and 4 rows).
constexpr std::size_t kAhead = 4096;

// R rows by one block of 16 columns over `steps` cells.
template <int R>
inline __attribute__((always_inline)) void madd_sums(const std::uint8_t* a, std::size_t stride, const std::int8_t* b,
                                                     std::size_t steps, __m256i (&acc)[R][2]) {
  const __m256i ones = _mm256_set1_epi16(1);
  const auto* w = reinterpret_cast<const __m256i*>(b);
  if constexpr (R == 1) {
#pragma GCC unroll 4
    for (std::size_t s = 0; s < steps; ++s) {
      __builtin_prefetch(b + s * 64 + kAhead);
      OCTAVO_MADD_CELL(acc[0], a + s * kCellBytes, w[2 * s], w[2 * s + 1], ones, "m");
    }
  } else {
    for (std::size_t s = 0; s < steps; ++s) {
      __builtin_prefetch(b + s * 64 + kAhead);
      const __m256i w0 = _mm256_load_si256(w + 2 * s), w1 = _mm256_load_si256(w + 2 * s + 1);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r)
        OCTAVO_MADD_CELL(acc[r], a + static_cast<std::size_t>(r) * stride + s * kCellBytes, w0, w1, ones, "x");
    }
  }
}

template <int R>
inline __attribute__((always_inline)) void start_sums(const RowQuant* q, std::size_t groups, __m256i (&acc)[R][2]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) acc[r][0] = acc[r][1] = _mm256_set1_epi32(q[static_cast<std::size_t>(r) * groups].extra);
}

template <int R>
inline __attribute__((always_inline)) void keep_sums(const __m256i (&acc)[R][2], __m256i (&sums)[2][R]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    sums[0][r] = acc[r][0];
    sums[1][r] = acc[r][1];
  }
}

struct MaddTile {
  const Gemm& g;
  std::size_t row, block;  // the first row, and the block of 16 columns

  std::size_t stride() const { return cell_bytes(round_up(g.weight.k, kPanelK)); }
  const std::uint8_t* a() const { return g.panel + row * stride(); }
  const std::int8_t* b() const { return g.weight.data + block * g.weight.block_bytes(); }
};

// One scale for each row.
template <int R>
void madd_tile(const MaddTile& t) {
  const Gemm& g = t.g;
  __m256i acc[R][2], sums[2][R];
  start_sums(g.quant + t.row, 1, acc);
  madd_sums(t.a(), t.stride(), t.b(), steps_of(g.weight.k), acc);
  keep_sums(acc, sums);
  for (std::size_t h = 0; h < 2; ++h) finish_rows<Avx2>(g, t.block * kBlockN + 8 * h, t.row, R, sums[h], 1);
}

// What a part of a row adds to its sums: RowQuant::extra is of the whole row.
inline std::int32_t extra_of(const std::uint8_t* cells, std::size_t steps) {
  std::int32_t extra = 0;
  for (std::size_t i = 0; i < steps; ++i)
    for (std::size_t j = 0; j < 4; ++j) extra += cells[i * kCellBytes + j] & cells[i * kCellBytes + 4 + j];
  return extra;
}

// Integer sums of one chunk of a long row.
template <int R>
void madd_raw_tile(const MaddTile& t) {
  const Gemm& g = t.g;
  const std::size_t first = g.chunk * kChunkK, k = g.weight.k - first < kChunkK ? g.weight.k - first : kChunkK;
  const std::uint8_t* a = t.a() + cell_bytes(first);
  __m256i acc[R][2], sums[2][R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
    acc[r][0] = acc[r][1] = _mm256_set1_epi32(extra_of(a + static_cast<std::size_t>(r) * t.stride(), steps_of(k)));
  madd_sums(a, t.stride(), t.b() + first * kBlockN, steps_of(k), acc);
  keep_sums(acc, sums);
  for (std::size_t h = 0; h < 2; ++h) finish_raw_rows<Avx2>(g, t.block * kBlockN + 8 * h, t.row, R, sums[h], 1);
}

// Adds eight columns of group `i` to the float sums.
template <int R>
inline void madd_add_group(const Gemm& g, std::size_t i, std::size_t column, const RowQuant* quant, std::size_t groups,
                           const __m256i* sums, __m256* total) {
  const __m256i colsum = Avx2::load_i(g.weight.colsum + i * g.weight.padded_n() + column);
#pragma GCC unroll 8
  for (std::size_t r = 0; r < R; ++r) {
    const RowQuant& q = quant[r * groups];
    total[r] = group_added<Avx2>(total[r], sums[r], colsum, _mm256_set1_epi32(q.pair), _mm256_set1_ps(q.scale));
  }
}

// One scale for each group of 128 inputs: float sums beside the integer ones, in memory.
template <int R>
void madd_group_tile(const MaddTile& t) {
  const Gemm& g = t.g;
  const std::size_t groups = groups_of(g.weight.k, g.group), column = t.block * kBlockN;
  __m256 total[2][R] = {};
  for (std::size_t i = 0; i < groups; ++i) {
    const std::size_t first = i * kGroup, k = g.weight.k - first < kGroup ? g.weight.k - first : kGroup;
    const RowQuant* quant = g.quant + t.row * groups + i;
    __m256i acc[R][2], sums[2][R];
    start_sums(quant, groups, acc);
    madd_sums(t.a() + cell_bytes(first), t.stride(), t.b() + first * kBlockN, steps_of(k), acc);
    keep_sums(acc, sums);
    for (std::size_t h = 0; h < 2; ++h) madd_add_group<R>(g, i, column + 8 * h, quant, groups, sums[h], total[h]);
  }
  for (std::size_t h = 0; h < 2; ++h) finish_rows<Avx2>(g, column + 8 * h, t.row, R, total[h], 1);
}

using MaddKernel = void (*)(const MaddTile&);

constexpr std::size_t kMaddRows = 5;
constexpr MaddKernel kMaddTile[kMaddRows] = {madd_tile<1>, madd_tile<2>, madd_tile<3>, madd_tile<4>, madd_tile<5>};
constexpr MaddKernel kMaddRaw[kMaddRows] = {madd_raw_tile<1>, madd_raw_tile<2>, madd_raw_tile<3>, madd_raw_tile<4>,
                                            madd_raw_tile<5>};
constexpr MaddKernel kMaddGroups[kMaddRows] = {madd_group_tile<1>, madd_group_tile<2>, madd_group_tile<3>,
                                               madd_group_tile<4>, madd_group_tile<5>};

// Rows in tiles as even as they go: 8 are 4 + 4, not 5 + 3.
inline void madd_gemm(const Gemm& g) {
  const MaddKernel* kernels = g.raw ? kMaddRaw : g.group ? kMaddGroups : kMaddTile;
  const std::size_t tiles = (g.rows + kMaddRows - 1) / kMaddRows;
  for (std::size_t block = g.block_begin; block < g.block_end; ++block)
    for (std::size_t i = 0; i < tiles; ++i) {
      const std::size_t first = g.rows * i / tiles, last = g.rows * (i + 1) / tiles;
      kernels[last - first - 1]({g, first, block});
    }
}

// What bounds the above: its four instructions on registers alone.
inline void madd_peak(std::size_t turns) {
  __m256i acc[10];
  const __m256i size = _mm256_set1_epi8(1), mask = _mm256_setzero_si256(), ones = _mm256_set1_epi16(1);
#pragma GCC unroll 10
  for (auto& x : acc) x = _mm256_setzero_si256();
  for (std::size_t i = 0; i < turns; ++i)
#pragma GCC unroll 10
    for (auto& x : acc) {
      __m256i t;
      __asm__(
          "vpxor %2, %3, %1\n\t"
          "vpmaddubsw %1, %2, %1\n\t"
          "vpmaddwd %4, %1, %1\n\t"
          "vpaddd %1, %0, %0"
          : "+x"(x), "=&x"(t)
          : "x"(size), "x"(mask), "x"(ones));
    }
#pragma GCC unroll 10
  for (auto& x : acc) __asm__ volatile("" : : "x"(x));
}

inline std::uint64_t read_bytes(const std::uint8_t* data, std::size_t n) {
  __m256i x[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
  std::size_t i = 0;
  for (; i + 128 <= n; i += 128)
    for (std::size_t j = 0; j < 4; ++j)
      x[j] = _mm256_xor_si256(x[j], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + i + 32 * j)));
  std::uint64_t rest = 0;
  for (; i < n; ++i) rest ^= data[i];
  const __m256i all = _mm256_xor_si256(_mm256_xor_si256(x[0], x[1]), _mm256_xor_si256(x[2], x[3]));
  return rest ^ static_cast<std::uint64_t>(sum_quads(all));
}

}  // namespace
}  // namespace octavo
