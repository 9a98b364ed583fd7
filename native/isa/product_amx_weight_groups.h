// Weights in groups of 64 and more, on AMX. Their integers have no sign, and inputs have one: `tdpbsud`. What packed
// weights hold of some groups is copied to tiles before it is multiplied, and with 4 bits unpacked to bytes.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "isa/group_zeros_avx512.h"
#include "isa/product_amx_groups.h"
#include "isa/vector_avx512.h"

namespace octavo {
namespace {

// Groups of weights. `each`: a scale for each group of a row, else one for the row. Minima do not come this way: only
// groups of 32 have any.
template <int bits, bool each, bool affine>
struct WeightGroups {
  static constexpr bool kAdds = each;
  const GroupBlock of;
  const std::int8_t* data;
  const std::size_t groups;

  explicit WeightGroups(const Gemm& g) : of(g.weight.format, g.weight.k), data(g.weight.data), groups(of.groups) {}

  OCTAVO_INLINE const std::int8_t* at(std::size_t block, std::size_t group) const { return data + block * of.bytes + group * of.group_bytes; }

  struct Block {
    __m512 scale;
    __m512i zeros;
    OCTAVO_INLINE Block(const WeightGroups& w, std::size_t block, std::size_t group) {
      const std::int8_t* b = w.at(block, group);
      scale = Avx512::load_f16(reinterpret_cast<const std::uint16_t*>(b + w.of.scales));
      zeros = affine ? group_zeros<bits>(b + w.of.zeros) : _mm512_set1_epi32(w.of.format.zero());
    }
  };

  // docs/numbers.md: "f = fma(t[j] scale[j], s[n, j], f)"
  OCTAVO_INLINE void add(__m512& f, __m512i t, const Block& b, const RowQuant& q) const {
    const __m512 x = _mm512_cvtepi32_ps(Avx512Vnni::correct(t, b.zeros, _mm512_set1_epi32(q.pair)));
    f = _mm512_fmadd_ps(each ? _mm512_mul_ps(x, _mm512_set1_ps(q.scale)) : x, b.scale, f);
  }
  // The zero point of the row comes off all its groups at once.
  OCTAVO_INLINE void finish(__m512& f, std::size_t block, const RowQuant& q) const {
    const __m512 offset = _mm512_loadu_ps(reinterpret_cast<const float*>(data + block * of.bytes + of.offsets));
    f = _mm512_mul_ps(_mm512_fmadd_ps(_mm512_set1_ps(static_cast<float>(-q.extra)), offset, f), _mm512_set1_ps(q.scale));
  }
};

// The integers of some groups of two blocks as tiles.
struct GroupTiles {
  alignas(64) std::int8_t bytes[2][kTogether][kGroup * kBlockN];

  template <int bits>
  OCTAVO_INLINE void unpack(std::size_t block, std::size_t nth, const std::int8_t* from, std::size_t group) {
    std::int8_t* to = bytes[block][nth];
    const __m512i low = _mm512_set1_epi8(15);
    for (std::size_t i = 0; i < group * kBlockN; i += bits == 4 ? 128 : 64, to += bits == 4 ? 128 : 64) {
      const __m512i q = _mm512_loadu_si512(from + i * bits / 8);
      if constexpr (bits == 4) {
        _mm512_store_si512(to, _mm512_and_si512(q, low));
        _mm512_store_si512(to + 64, _mm512_and_si512(_mm512_srli_epi16(q, 4), low));
      } else {
        _mm512_store_si512(to, q);
      }
    }
  }
};

// Of inputs with a sign and weights without.
OCTAVO_INLINE void weight_group_step(const std::uint8_t* a, std::size_t stride, const std::int8_t* b0, const std::int8_t* b1) {
  _tile_loadd(6, b0, 64);
  _tile_loadd(4, a, stride);
  _tile_dpbsud(0, 4, 6);
  _tile_loadd(7, b1, 64);
  _tile_dpbsud(1, 4, 7);
  _tile_loadd(5, a + kTile * stride, stride);
  _tile_dpbsud(2, 5, 6);
  _tile_dpbsud(3, 5, 7);
}

template <int bits, bool each, bool affine>
struct WeightGroupProduct {
  using Pending = PendingGroups<WeightGroups<bits, each, affine>>;

  // 32 rows by 2 blocks, whose sums `pending` has afterwards.
  static void square(std::size_t row, std::size_t rows, std::size_t block, std::size_t columns, Pending& pending, const std::int8_t* next, std::size_t lines) {
    const std::size_t group = pending.of.of.format.group, groups = pending.of.groups;
    const std::size_t stride = group_panel_stride(group, pending.g.weight.k);
    const std::size_t parts = (groups + kTogether - 1) / kTogether;
    const std::uint8_t* a = pending.g.panel + row * stride;
    GroupTiles tiles[2];
    const auto unpack = [&](std::size_t part) {
      for (std::size_t from = groups * part / parts, j = from; j < groups * (part + 1) / parts; ++j)
        for (std::size_t c = 0; c < columns; ++c) tiles[part % 2].template unpack<bits>(c, j - from, pending.of.at(block + c, j), group);
      __asm__ volatile("" : : "r"(&tiles) : "memory");
    };
    unpack(0);
    for (std::size_t part = 0; part < parts; ++part) {
      const std::size_t first = groups * part / parts, last = groups * (part + 1) / parts, pace = (pending.kUnits + (last - first) - 1) / (last - first);
      const GroupTiles& now = tiles[part % 2];
      for (std::size_t j = first; j < last; ++j) {
        clear_sums();
        if (next) prefetch_lines(next + j * lines * 64, lines);
        for (std::size_t i = 0; i < group; i += kPanelK)
          weight_group_step(a + j * group + i, stride, now.bytes[0][j - first] + i * kBlockN, now.bytes[columns - 1][j - first] + i * kBlockN);
        // Ahead: a tile cannot be read before what was written to it has left the processor's buffer of stores.
        if (j == first && part + 1 < parts) unpack(part + 1);
        pending.work(pace);
        pending.keep(j - first);
      }
      pending.take(row, rows, block, columns, first, last);
    }
  }

  // As squares().
  static void squares(const Gemm& g, std::size_t rows) {
    TileConfig(kTile).load();
    Pending pending(g);
    const std::size_t tiles = (rows + 2 * kTile - 1) / (2 * kTile), groups = pending.of.groups;
    const WeightParts parts(g.weight, g.block_begin, g.block_end, tiles, 2, 1);
    const std::size_t pair = 2 * pending.of.of.bytes / 64, lines = (pair + groups * tiles - 1) / (groups * tiles);  // of a group
    const std::int8_t* end = g.weight.data + g.block_end * pending.of.of.bytes;
    for (std::size_t first = g.block_begin; first < g.block_end; first += parts.blocks) {
      const std::size_t last = first + parts.blocks < g.block_end ? first + parts.blocks : g.block_end;
      const std::int8_t* next = parts.next(g.weight, first);
      for (std::size_t row = 0; row < rows; row += 2 * kTile)
        for (std::size_t block = first; block < last; block += 2) {
          if (next && next + lines * groups * 64 > end) next = nullptr;
          square(row, rows - row < 2 * kTile ? rows - row : 2 * kTile, block, last - block < 2 ? 1 : 2, pending, next, lines);
          if (next) next += lines * groups * 64;
        }
    }
    pending.work(pending.kUnits);
    _tile_release();
  }
};

template <int bits, bool each>
void weight_group_squares(const Gemm& g, std::size_t rows) {
  g.weight.format.affine ? WeightGroupProduct<bits, each, true>::squares(g, rows) : WeightGroupProduct<bits, each, false>::squares(g, rows);
}

}  // namespace
}  // namespace octavo
