// AMX: one instruction multiplies 16 rows of 64 uint8 by 64 x 16 int8 and adds exactly in int32. The
// packed blocks are its tiles as they lie: 16 steps of 4 inputs of one block are 1024 bytes in order.
//
// Tiles 0..3 hold sums, 4 and 5 activations, 6 and 7 weights.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"
#include "isa/constant_indices.h"
#include "isa/epilogue.h"
#include "isa/product_parts.h"
#include "isa/product_vnni_avx512.h"

namespace octavo {
namespace {

constexpr std::size_t kTile = 16;           // rows of a tile
constexpr std::size_t kTileBytes = 1024;
constexpr std::size_t kSlice = 8;           // rows that the epilogue finishes at a time

struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start = 0, reserved[14] = {};
  std::uint16_t bytes[16] = {};
  std::uint8_t rows[16] = {};

  explicit TileConfig(std::size_t m) {
    for (int i = 0; i < 8; ++i) {
      bytes[i] = 64;
      rows[i] = static_cast<std::uint8_t>(i < 6 ? m : kTile);  // sums and activations have m rows
    }
  }

  OCTAVO_INLINE void load() const {
    // GCC's intrinsic says that it reads eight bytes; the others must have been stored too.
    __asm__ volatile("" : : "r"(this) : "memory");
    _tile_loadconfig(this);
  }
};

// The weights of one block as tiles. Reading a last tile that is not whole goes on into the next
// block, whose weights meet activations that are 0; behind the last block there is nothing to read.
struct BlockTiles {
  const std::int8_t* data;
  const std::int8_t* last;  // the last tile
  alignas(64) std::int8_t rest[kTileBytes];

  void point(const Weight& w, std::size_t block) {
    const std::size_t bytes = w.block_bytes(), before = (round_up(w.k, kPanelK) / kPanelK - 1) * kTileBytes;
    data = w.data + block * bytes;
    last = data + before;
    if ((w.blocks() - block) * bytes >= before + kTileBytes) return;
    for (std::size_t i = 0; i < kTileBytes; ++i) rest[i] = before + i < bytes ? last[i] : 0;
    last = rest;
    __asm__ volatile("" : : "r"(rest) : "memory");
  }
};

OCTAVO_INLINE void clear_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

// The four tiles of sums, 1024 bytes each.
OCTAVO_INLINE void store_sums(std::int32_t* to) {
  _tile_stored(0, to, 64);
  _tile_stored(1, to + 256, 64);
  _tile_stored(2, to + 512, 64);
  _tile_stored(3, to + 768, 64);
}

// Finished sums wait in memory, and their epilogue runs between the next tiles' products: the vector
// units work while the tiles do.
struct Pending {
  const Gemm& g;
  const bool plain;
  alignas(64) std::int32_t sums[2][4][kTile][kBlockN];
  int turn = 0;
  std::size_t row = 0, rows = 0, block = 0, columns = 0, units = 0, done = 0, pace = 0;
  bool wide = false;  // four column blocks of up to 16 rows, else two by two tiles

  explicit Pending(const Gemm& gemm)
      : g(gemm), plain(gemm.activation == Activation::kNone && !gemm.factor && !gemm.residual && !gemm.weight.zero) {}

  // The four tiles of sums, which now belong to these rows and columns.
  OCTAVO_INLINE void take(std::size_t first_row, std::size_t row_count, std::size_t first_block, std::size_t column_count, bool is_wide, std::size_t steps) {
    store_sums(&sums[turn][0][0][0]);
    turn ^= 1;
    row = first_row;
    rows = row_count;
    block = first_block;
    columns = column_count;
    wide = is_wide;
    units = 4 * (kTile / kSlice);
    pace = (units + steps - 1) / steps;
    done = 0;
  }

  // A step's part of the epilogue.
  OCTAVO_INLINE void work() {
    const std::size_t until = done + pace < units ? done + pace : units;
    for (; done < until; ++done) unit(done);
  }
  void finish() {
    for (; done < units; ++done) unit(done);
  }

 private:
  OCTAVO_INLINE void unit(std::size_t i) const {
    const std::size_t tile = i / (kTile / kSlice), slice = i % (kTile / kSlice) * kSlice;
    const std::size_t column = wide ? tile : tile % 2, first = (wide ? 0 : tile / 2 * kTile) + slice;
    if (column >= columns || first >= rows) return;
    const std::size_t n = rows - first < kSlice ? rows - first : kSlice;
    const auto* from = reinterpret_cast<const __m512i*>(sums[turn ^ 1][tile][slice]);
    if (plain && n == kSlice && (block + column + 1) * kBlockN <= g.weight.n) plain_rows((block + column) * kBlockN, row + first, from);
    else finish_rows<Avx512Vnni>(g, (block + column) * kBlockN, row + first, n, from, 1);
  }

  // kSlice rows of 16 columns with nothing but scales and a bias (one for all, or one for each row).
  OCTAVO_INLINE void plain_rows(std::size_t column, std::size_t first, const __m512i* from) const {
    const __m512 scale = _mm512_loadu_ps(g.weight.scale + column);
    alignas(64) static constexpr float kNone[kBlockN] = {};
    const float* bias = g.bias ? g.bias + first * g.bias_stride + column : kNone;
    const std::size_t bias_step = g.bias ? g.bias_stride : 0;
    const __m512i colsum = _mm512_load_si512(g.weight.colsum + column);
    const RowQuant* q = g.quant + first;
    float* out = g.out + first * g.out_stride + column;
#pragma GCC unroll 8
    for (std::size_t r = 0; r < kSlice; ++r) {
      const __m512 f = _mm512_cvtepi32_ps(Avx512Vnni::correct(from[r], colsum, _mm512_set1_epi32(q[r].pair)));
      _mm512_storeu_ps(out + r * g.out_stride, _mm512_fmadd_ps(_mm512_mul_ps(f, _mm512_set1_ps(q[r].scale)), scale, _mm512_loadu_ps(bias + r * bias_step)));
    }
  }
};

OCTAVO_INLINE void prefetch_lines(const std::int8_t* next, std::size_t lines) {
  for (std::size_t i = 0; i < lines; ++i) _mm_prefetch(next + i * 64, _MM_HINT_T1);
}

// One step of 64 inputs: 32 rows by 2 blocks.
OCTAVO_INLINE void square_step(const std::uint8_t* a, std::size_t stride, const std::int8_t* b0, const std::int8_t* b1) {
  _tile_loadd(6, b0, 64);
  _tile_loadd(4, a, stride);
  _tile_dpbusd(0, 4, 6);
  _tile_loadd(7, b1, 64);
  _tile_dpbusd(1, 4, 7);
  _tile_loadd(5, a + kTile * stride, stride);
  _tile_dpbusd(2, 5, 6);
  _tile_dpbusd(3, 5, 7);
}

inline void square(const std::uint8_t* a, std::size_t stride, const BlockTiles (&b)[2], Pending& pending, const std::int8_t* next, std::size_t lines) {
  clear_sums();
  const std::int8_t *b0 = b[0].data, *b1 = b[1].data;
  for (const std::uint8_t* end = a + stride - kPanelK; a < end; a += kPanelK) {
    square_step(a, stride, b0, b1);
    b0 += kTileBytes;
    b1 += kTileBytes;
    if (next) {
      prefetch_lines(next, lines);
      next += lines * 64;
    }
    pending.work();
  }
  square_step(a, stride, b[0].last, b[1].last);
  pending.finish();
}

// Up to 16 rows by 4 blocks: four chains of products, so that none waits for itself.
OCTAVO_INLINE void wide_step(const std::uint8_t* a, std::size_t stride, const std::int8_t* b0, const std::int8_t* b1, const std::int8_t* b2, const std::int8_t* b3) {
  _tile_loadd(4, a, stride);
  _tile_loadd(6, b0, 64);
  _tile_dpbusd(0, 4, 6);
  _tile_loadd(7, b1, 64);
  _tile_dpbusd(1, 4, 7);
  _tile_loadd(6, b2, 64);
  _tile_dpbusd(2, 4, 6);
  _tile_loadd(7, b3, 64);
  _tile_dpbusd(3, 4, 7);
}

inline void wide(const std::uint8_t* a, std::size_t stride, const BlockTiles (&b)[4], Pending& pending, const std::int8_t* next, std::size_t block_bytes) {
  clear_sums();
  std::size_t at = 0;
  for (const std::uint8_t* end = a + stride - kPanelK; a < end; a += kPanelK, at += kTileBytes) {
    if (next)
      for (std::size_t i = 0; i < 4; ++i) prefetch_lines(next + i * block_bytes + at, kTileBytes / 64);
    wide_step(a, stride, b[0].data + at, b[1].data + at, b[2].data + at, b[3].data + at);
    pending.work();
  }
  wide_step(a, stride, b[0].last, b[1].last, b[2].last, b[3].last);
  pending.finish();
}

// Blocks [begin, end) for all rows: their weights stay in the L2 cache, and 32 rows at a time their
// activations in the L1 cache. Going along a row writes the output in order, which processors expect.
inline void squares(const Gemm& g, std::size_t rows, Pending& pending) {
  TileConfig(kTile).load();
  const std::size_t tiles = (rows + 2 * kTile - 1) / (2 * kTile), block_bytes = g.weight.block_bytes();
  const std::size_t stride = round_up(g.weight.k, kPanelK), steps = stride / kPanelK;
  const WeightParts parts(g.weight, g.block_begin, g.block_end, tiles, 2, 1);
  BlockTiles b[2];
  for (std::size_t first = g.block_begin; first < g.block_end; first += parts.blocks) {
    const std::size_t last = first + parts.blocks < g.block_end ? first + parts.blocks : g.block_end;
    const std::int8_t* next = parts.next(g.weight, first);
    const std::int8_t* end = g.weight.data + g.block_end * block_bytes;
    const std::size_t lines = (32 + tiles - 1) / tiles;  // a step
    for (std::size_t row = 0; row < rows; row += 2 * kTile)
      for (std::size_t block = first; block < last; block += 2) {
        const std::size_t columns = last - block < 2 ? 1 : 2;
        b[0].point(g.weight, block);
        b[1].point(g.weight, block + columns - 1);  // the same twice where there is one
        if (next && next + lines * steps * 64 > end) next = nullptr;
        square(g.panel + row * stride, stride, b, pending, next, lines);
        if (next) next += lines * steps * 64;
        pending.take(row, rows - row < 2 * kTile ? rows - row : 2 * kTile, block, columns, false, steps);
      }
  }
}

inline void wides(const Gemm& g, std::size_t row, std::size_t rows, Pending& pending) {
  TileConfig(rows).load();
  const std::size_t stride = round_up(g.weight.k, kPanelK);
  const std::size_t block_bytes = g.weight.block_bytes();
  const bool prefetches = block_bytes * g.weight.blocks() > kFewBytes;
  BlockTiles b[4];
  for (std::size_t block = g.block_begin; block < g.block_end; block += 4) {
    const std::size_t columns = g.block_end - block < 4 ? g.block_end - block : 4;
    const std::int8_t* next = prefetches && block + 8 <= g.block_end ? g.weight.data + (block + 4) * block_bytes : nullptr;
    for (std::size_t i = 0; i < 4; ++i) b[i].point(g.weight, block + (i < columns ? i : columns - 1));
    wide(g.panel + row * stride, stride, b, pending, next, block_bytes);
    pending.take(row, rows, block, columns, true, stride / kPanelK);
  }
}

}  // namespace
}  // namespace octavo
