// Rows with a scale for each group of 128 inputs, on AMX: two steps of tiles a group. The integers of a
// few groups go to memory and are added to float sums between the products of the next ones: the sums
// of a few rows then stay in registers over those groups.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "isa/product_amx.h"

namespace octavo {
namespace {

constexpr std::size_t kTogether = 3;  // groups at most; their integers take 24 of the L1 cache's 48 kB

// docs/notes/processors.md: "On AMX three groups wait and are added together"
// 32 rows by 2 blocks: some groups of them that wait to be added, and the float sums so parts. `Groups` is what a group adds:
//
//     kAdds                    whether add() is all, or finish() must follow the last group
//     groups                   of a row
//     Block(of, block, group)  what it reads of 16 columns
//     add(f, t, block, q)      one more group of a row and those columns, whose exact products are t
//     finish(f, block, q)      the float sum of all groups of a row that begins at q
template <class Groups>
struct PendingGroups {
  static constexpr std::size_t kRows = kSlice, kUnits = 2 * kTile / kRows;  // rows of a unit
  using Block = typename Groups::Block;

  const Gemm& g;
  const Groups of;
  const bool plain;
  alignas(64) std::int32_t sums[2][kTogether][4][kTile][kBlockN];
  alignas(64) float total[kUnits][kRows][2][kBlockN];
  int turn = 0;
  std::size_t row = 0, rows = 0, block = 0, columns = 0, first = 0, last = 0, done = kUnits;

  explicit PendingGroups(const Gemm& gemm) : g(gemm), of(gemm), plain(gemm.activation == Activation::kNone && !gemm.factor && !gemm.residual) {}

  // The tiles' sums of one group of those that take() will be told of.
  OCTAVO_INLINE void keep(std::size_t nth) { store_sums(&sums[turn][nth][0][0][0]); }

  // What keep() was given is of groups [first_group, last_group) of these rows and columns.
  void take(std::size_t first_row, std::size_t row_count, std::size_t first_block, std::size_t column_count, std::size_t first_group, std::size_t last_group) {
    turn ^= 1;
    row = first_row;
    rows = row_count;
    block = first_block;
    columns = column_count;
    first = first_group;
    last = last_group;
    done = 0;
  }
  OCTAVO_INLINE void work(std::size_t count) {
    for (const std::size_t until = done + count < kUnits ? done + count : kUnits; done < until; ++done) unit(done);
  }

 private:
  // Rows behind the last one are in the panel's padding, and take the last one's scales; what they give is not stored.
  void unit(std::size_t i) {
    const std::size_t half = i / (kTile / kRows), slice = i % (kTile / kRows) * kRows, from = half * kTile + slice;
    if (from >= rows) return;
    const RowQuant* q = g.quant + (row + from) * of.groups + first;
    std::size_t at_row[kRows];
    for (std::size_t r = 0; r < kRows; ++r) at_row[r] = (from + r < rows ? r : rows - 1 - from) * of.groups;
    const std::size_t second = block + columns - 1;  // where there is one block, it is both
    __m512 f[kRows][2];
#pragma GCC unroll 8
    for (std::size_t r = 0; r < kRows; ++r)
#pragma GCC unroll 2
      for (std::size_t c = 0; c < 2; ++c) f[r][c] = first ? _mm512_load_ps(total[i][r][c]) : _mm512_setzero_ps();
    for (std::size_t at = 0; at < last - first; ++at, ++q) {
      const auto& left = sums[turn ^ 1][at][2 * half];
      const auto& right = sums[turn ^ 1][at][2 * half + 1];
      const Block b[2] = {{of, block, first + at}, {of, second, first + at}};
#pragma GCC unroll 8
      for (std::size_t r = 0; r < kRows; ++r) {
        of.add(f[r][0], _mm512_load_si512(left[slice + r]), b[0], q[at_row[r]]);
        of.add(f[r][1], _mm512_load_si512(right[slice + r]), b[1], q[at_row[r]]);
      }
    }
    if (!Groups::kAdds && last == of.groups) {
      q = g.quant + (row + from) * of.groups;
#pragma GCC unroll 8
      for (std::size_t r = 0; r < kRows; ++r) {
        of.finish(f[r][0], block, q[at_row[r]]);
        of.finish(f[r][1], second, q[at_row[r]]);
      }
    }
    if (last == of.groups && plain && from + kRows <= rows && (block + columns) * kBlockN <= g.weight.n) return plain_rows(row + from, f);
#pragma GCC unroll 8
    for (std::size_t r = 0; r < kRows; ++r)
#pragma GCC unroll 2
      for (std::size_t c = 0; c < 2; ++c) _mm512_store_ps(total[i][r][c], f[r][c]);
    if (last < of.groups) return;
    const std::size_t n = rows - from < kRows ? rows - from : kRows;
    for (std::size_t c = 0; c < columns; ++c)
      finish_rows<Avx512Vnni>(g, (block + c) * kBlockN, row + from, n, reinterpret_cast<const __m512*>(total[i][0][c]), 2);
  }

  // Rows of whole blocks with nothing but scales and a bias (one for all, or one for each row).
  OCTAVO_INLINE void plain_rows(std::size_t first_row, const __m512 (&f)[kRows][2]) const {
    alignas(64) static constexpr float kNone[kBlockN] = {};
#pragma GCC unroll 2
    for (std::size_t c = 0; c < 2; ++c) {
      if (c == columns) return;
      const std::size_t column = (block + c) * kBlockN, bias_step = g.bias ? g.bias_stride : 0;
      const __m512 scale = _mm512_loadu_ps(g.weight.scale + column);
      const float* bias = g.bias ? g.bias + first_row * bias_step + column : kNone;
      float* out = g.out + first_row * g.out_stride + column;
#pragma GCC unroll 8
      for (std::size_t r = 0; r < kRows; ++r)
        _mm512_storeu_ps(out + r * g.out_stride, _mm512_fmadd_ps(f[r][c], scale, _mm512_loadu_ps(bias + r * bias_step)));
    }
  }
};

// Groups of 128 inputs of a row, by weights with one scale a column.
struct RowGroups {
  static constexpr bool kAdds = true;
  const Weight& weight;
  const std::size_t groups;

  explicit RowGroups(const Gemm& g) : weight(g.weight), groups(groups_of(g.weight.k, g.group)) {}

  struct Block {
    const __m512i zeros;
    OCTAVO_INLINE Block(const RowGroups& of, std::size_t block, std::size_t group)
        : zeros(_mm512_load_si512(of.weight.colsum + group * of.weight.padded_n() + block * kBlockN)) {}
  };
  OCTAVO_INLINE void add(__m512& f, __m512i t, const Block& b, const RowQuant& q) const {
    f = group_added<Avx512Vnni>(f, t, b.zeros, _mm512_set1_epi32(q.pair), _mm512_set1_ps(q.scale));
  }
  OCTAVO_INLINE void finish(__m512&, std::size_t, const RowQuant&) const {}
};

// 32 rows by 2 blocks, whose sums `pending` has afterwards.
inline void group_square(std::size_t row, std::size_t rows, std::size_t block, std::size_t columns, const BlockTiles (&b)[2], PendingGroups<RowGroups>& pending,
                         const std::int8_t* next, std::size_t lines) {
  constexpr std::size_t kSteps = kGroup / kPanelK;
  const std::size_t stride = round_up(pending.g.weight.k, kPanelK), steps = stride / kPanelK, groups = pending.of.groups;
  const std::size_t parts = (groups + kTogether - 1) / kTogether;
  const std::uint8_t* a = pending.g.panel + row * stride;
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t first = groups * part / parts, last = groups * (part + 1) / parts;
    const std::size_t end = last * kSteps < steps ? last * kSteps : steps, here = end - first * kSteps;
    const std::size_t pace = (pending.kUnits + here - 1) / here;
    for (std::size_t s = first * kSteps; s < end; ++s) {
      const bool final = s + 1 == steps;
      if (s % kSteps == 0) clear_sums();
      if (next) prefetch_lines(next + s * lines * 64, lines);
      square_step(a + s * kPanelK, stride, final ? b[0].last : b[0].data + s * kTileBytes, final ? b[1].last : b[1].data + s * kTileBytes);
      pending.work(pace);
      if (s % kSteps == kSteps - 1 || final) pending.keep(s / kSteps - first);
    }
    pending.take(row, rows, block, columns, first, last);
  }
}

// As squares().
inline void group_squares(const Gemm& g, std::size_t rows) {
  TileConfig(kTile).load();
  PendingGroups<RowGroups> pending(g);
  const std::size_t tiles = (rows + 2 * kTile - 1) / (2 * kTile), steps = round_up(g.weight.k, kPanelK) / kPanelK;
  const WeightParts parts(g.weight, g.block_begin, g.block_end, tiles, 2, 1);
  BlockTiles b[2];
  for (std::size_t first = g.block_begin; first < g.block_end; first += parts.blocks) {
    const std::size_t last = first + parts.blocks < g.block_end ? first + parts.blocks : g.block_end;
    const std::int8_t *next = parts.next(g.weight, first), *end = g.weight.data + g.block_end * g.weight.block_bytes();
    const std::size_t lines = (32 + tiles - 1) / tiles;  // a step
    for (std::size_t row = 0; row < rows; row += 2 * kTile)
      for (std::size_t block = first; block < last; block += 2) {
        const std::size_t columns = last - block < 2 ? 1 : 2;
        b[0].point(g.weight, block);
        b[1].point(g.weight, block + columns - 1);  // the same twice where there is one
        if (next && next + lines * steps * 64 > end) next = nullptr;
        group_square(row, rows - row < 2 * kTile ? rows - row : 2 * kTile, block, columns, b, pending, next, lines);
        if (next) next += lines * steps * 64;
      }
  }
  pending.work(pending.kUnits);
  _tile_release();
}

}  // namespace
}  // namespace octavo
