// The int8 product. D is a vector type of vector_*.h with an instruction set's dot product of four uint8 by four int8
// in each lane of 32 bits, as product_vnni_avx512.h has it:
//
//     dot(sum, x, w)             adds the products of inputs x and weights w to the sums; exact
//     dot_memory(sum, x, p)      the same of weights that lie at p
//     kInputBytes                of an input in a panel
//     inputs(p)                  four inputs in each lane
//     start(extra), extra(a, n)  what sums start with, of RowQuant::extra; the same of n steps of a row
//     kRowSums                   sums along the inputs of a single row: 4, or 1 where a dot product ends in an addition
//     kAhead                     bytes between the weights in use and those prefetched in each step; 0: none are
//     load_weights(p)            weights, to stay in a register while rows pass
//     in_turn(sum)               no sum is converted before this one
//     pair_product(colsum, pair) what `correct` adds
//     kWidest, tallest()         blocks and rows of a tile: its sums, a row of weights and one input fill the registers
//
// and, where kFourSteps<D> says that a register of inputs serves four steps,
//
//     four_steps(p)              the inputs of four steps
//     dot_step<i>(sum, x, w)     a dot product with those of step i
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"
#include "contract/tables.h"
#include "isa/constant_indices.h"
#include "isa/epilogue.h"
#include "isa/product_parts.h"
#include "isa/product_tile.h"

namespace octavo {
namespace {

enum class ProductKind { kRows, kGroups, kRaw };  // one scale a row, one a group of it, integers of a chunk

template <class D>
constexpr int kParts = static_cast<int>(kBlockN) / D::kWidth;  // vectors of a block

template <class D>
inline constexpr bool kFourSteps = false;

// Four bytes of inputs, as the number that every lane is given.
OCTAVO_INLINE std::int32_t four_bytes(const void* p) {
  std::int32_t four;
  __builtin_memcpy(&four, p, 4);
  return four;
}

// Sums of R rows by C blocks of 16 columns. Every index is a constant for the compiler's front end
// (fold expressions, not loops): only then do all sums stay in registers.
template <class D, int R, int C>
struct ProductSums {
  static constexpr int N = C * kParts<D>;
  static constexpr std::size_t kCell = kBlockK * D::kInputBytes;  // bytes of four inputs
  using I = typename D::I;
  I v[R * N];

  using Rows = Sequence<R>;
  using Vectors = Sequence<N>;

  // Begins with what the panel's rows are off by, q `groups` apart from row to row.
  OCTAVO_INLINE void clear(const RowQuant* q, std::size_t groups) { clear(q, groups, Sequence<R * N>{}); }
  // Begins with minus zero points times column sums. Added at the end, as by Epilogue, it gives the same integer, and
  // is one more operation between the last product and the output.
  OCTAVO_INLINE void start(const RowQuant* q, const std::int32_t* colsum) { start(q, colsum, Rows{}, Vectors{}); }

  OCTAVO_INLINE void add(const std::uint8_t* a, std::size_t stride, const std::int8_t* b, std::size_t block, std::size_t steps) {
    if constexpr (kFourSteps<D>) {
      const std::size_t fours = steps / 4 * 4;
      for (std::size_t s = 0; s < fours; s += 4) four_steps(a + s * kCell, stride, b + s * 64, block, Rows{}, Vectors{});
      for (std::size_t s = fours; s < steps; ++s) step(a + s * kCell, stride, b + s * 64, block, Rows{}, Vectors{});
    } else if constexpr (R == 1 && D::kAhead) {
#pragma GCC unroll 4
      for (std::size_t s = 0; s < steps; ++s) {
        __builtin_prefetch(b + s * 64 + D::kAhead);
        step(a + s * kCell, stride, b + s * 64, block, Rows{}, Vectors{});
      }
    } else {
      for (std::size_t s = 0; s < steps; ++s) {
        if constexpr (D::kAhead) __builtin_prefetch(b + s * 64 + D::kAhead);
        step(a + s * kCell, stride, b + s * 64, block, Rows{}, Vectors{});
      }
    }
  }
  // Beside it prefetches the lines of some blocks from `next` on, one of each a step: weights of the next
  // columns, on their way from the L3 cache or memory while these are multiplied.
  OCTAVO_INLINE void add(const std::uint8_t* a, std::size_t stride, const std::int8_t* b, std::size_t block, std::size_t steps,
                         const std::int8_t* next, std::size_t blocks) {
    if (D::kAhead || !blocks) return add(a, stride, b, block, steps);
    if (blocks == 1) return add_prefetching<1>(a, stride, b, block, steps, next);
    if (blocks == 2) return add_prefetching<2>(a, stride, b, block, steps, next);
    if (blocks == 3) return add_prefetching<3>(a, stride, b, block, steps, next);
    add_prefetching<4>(a, stride, b, block, steps, next);
  }

  // To memory, for the epilogue's loops: a variable index into `v` itself would keep it there always.
  OCTAVO_INLINE void store(I* to) const { store(to, Sequence<R * N>{}); }

  // For a peak loop: the products of registers.
  OCTAVO_INLINE void spin() { spin(Sequence<R * N>{}); }
  OCTAVO_INLINE void keep() { keep(Sequence<R * N>{}); }

 private:
  static OCTAVO_INLINE const std::int8_t* weights(const std::int8_t* b, std::size_t block, int c) {
    return b + static_cast<std::size_t>(c / kParts<D>) * block + static_cast<std::size_t>(c % kParts<D>) * sizeof(I);
  }
  template <int P>
  OCTAVO_INLINE void add_prefetching(const std::uint8_t* a, std::size_t stride, const std::int8_t* b, std::size_t block, std::size_t steps,
                                     const std::int8_t* next) {
    std::size_t s = 0;
    if constexpr (kFourSteps<D>)
      for (; s + 4 <= steps; s += 4) {
        for (std::size_t i = s; i < s + 4; ++i) prefetch(next + i * 64, block, Sequence<P>{});
        four_steps(a + s * kCell, stride, b + s * 64, block, Rows{}, Vectors{});
      }
    for (; s < steps; ++s) {
      prefetch(next + s * 64, block, Sequence<P>{});
      step(a + s * kCell, stride, b + s * 64, block, Rows{}, Vectors{});
    }
  }
  template <int... i>
  static OCTAVO_INLINE void prefetch(const std::int8_t* at, std::size_t block, Indices<i...>) {
    (__builtin_prefetch(at + static_cast<std::size_t>(i) * block, 0, 2), ...);  // to the L2 cache
  }
  template <int... r, int... c>
  OCTAVO_INLINE void start(const RowQuant* q, const std::int32_t* colsum, Indices<r...>, Indices<c...> vectors) {
    const I sums[N] = {D::load_i(colsum + c * D::kWidth)...};
    (start_row<r>(D::start(q[r].extra), D::set_i(q[r].pair), sums, vectors), ...);
  }
  template <int r, int... c>
  OCTAVO_INLINE void start_row(I extra, I pair, const I (&sums)[N], Indices<c...>) {
    ((v[r * N + c] = D::add_i(extra, D::pair_product(sums[c], pair))), ...);
  }
  template <int... i>
  OCTAVO_INLINE void spin(Indices<i...>) {
    const I one = D::set_i(0x01010101);
    (D::dot(v[i], one, one), ...);
  }
  template <int... i>
  OCTAVO_INLINE void keep(Indices<i...>) {
    (D::in_turn(v[i]), ...);
  }
  template <int... i>
  OCTAVO_INLINE void store(I* to, Indices<i...>) const {
    ((to[i] = v[i]), ...);
  }
  template <int... i>
  OCTAVO_INLINE void clear(const RowQuant* q, std::size_t groups, Indices<i...>) {
    ((v[i] = D::start(q[static_cast<std::size_t>(i / N) * groups].extra)), ...);
  }
  template <int... r, int... c>
  OCTAVO_INLINE void step(const std::uint8_t* a, std::size_t stride, const std::int8_t* b, std::size_t block, Indices<r...>, Indices<c...> vectors) {
    const I w[N] = {D::load_weights(weights(b, block, c))...};
    (row<r>(D::inputs(a + static_cast<std::size_t>(r) * stride), w, vectors), ...);
  }
  template <int... r, int... c>
  OCTAVO_INLINE void four_steps(const std::uint8_t* a, std::size_t stride, const std::int8_t* b, std::size_t block, Indices<r...> rows,
                                Indices<c...>) {
    const I x[R] = {D::four_steps(a + static_cast<std::size_t>(r) * stride)...};
    (column<0, c>(x, weights(b, block, c), rows), ...);
    (column<1, c>(x, weights(b + 64, block, c), rows), ...);
    (column<2, c>(x, weights(b + 128, block, c), rows), ...);
    (column<3, c>(x, weights(b + 192, block, c), rows), ...);
  }
  template <int step, int c, int... r>
  OCTAVO_INLINE void column(const I (&x)[R], const std::int8_t* b, Indices<r...>) {
    const I w = D::load_weights(b);
    (D::template dot_step<step>(v[r * N + c], x[r], w), ...);
  }
  template <int r, int... c>
  OCTAVO_INLINE void row(decltype(D::inputs(nullptr)) x, const I (&w)[N], Indices<c...>) {
    (D::dot(v[r * N + c], x, w[c]), ...);
  }
};

// The float sums of rows with groups, beside ProductSums in registers.
template <class D, int R, int C>
struct GroupSums {
  static constexpr int N = C * kParts<D>;
  using F = typename D::F;
  using I = typename D::I;
  F v[R * N];

  OCTAVO_INLINE void clear() { clear(Sequence<R * N>{}); }
  // Adds one group: q of the first row, `groups` apart from row to row.
  OCTAVO_INLINE void add(const ProductSums<D, R, C>& acc, const std::int32_t* colsum, const RowQuant* q, std::size_t groups) {
    add(acc, colsum, q, groups, Sequence<R>{}, Sequence<N>{});
  }
  OCTAVO_INLINE void store(F* to) const { store(to, Sequence<R * N>{}); }

 private:
  template <int... i>
  OCTAVO_INLINE void clear(Indices<i...>) {
    ((v[i] = D::set(0.0f)), ...);
  }
  template <int... i>
  OCTAVO_INLINE void store(F* to, Indices<i...>) const {
    ((to[i] = v[i]), ...);
  }
  template <int... r, int... c>
  OCTAVO_INLINE void add(const ProductSums<D, R, C>& acc, const std::int32_t* colsum, const RowQuant* q, std::size_t groups,
                         Indices<r...>, Indices<c...> vectors) {
    const I sums[N] = {D::load_i(colsum + c * D::kWidth)...};
    (row<r>(acc, sums, q[static_cast<std::size_t>(r) * groups], vectors), ...);
  }
  template <int r, int... c>
  OCTAVO_INLINE void row(const ProductSums<D, R, C>& acc, const I (&sums)[N], const RowQuant& q, Indices<c...>) {
    const I pair = D::set_i(q.pair);
    const F scale = D::set(q.scale);
    ((v[r * N + c] = group_added<D>(v[r * N + c], acc.v[r * N + c], sums[c], pair, scale)), ...);
  }
};

template <class D>
struct Product {
  using F = typename D::F;
  using I = typename D::I;
  using Kernel = void (*)(const ProductTile&);
  static constexpr int kBlockVectors = kParts<D>;

  static std::size_t row_bytes(const Gemm& g) { return round_up(g.weight.k, kPanelK) * D::kInputBytes; }

  // docs/notes/processors.md: "Large outputs are prefetched too"
  // Steps between the rows that are prefetched (fewer, where there are not so many): all of them at once would
  // keep weights waiting.
  static constexpr std::size_t kStepsARow = 4;

  // One scale for each row. `prefetches_rows`: no cache has the outputs, or the biases of rows. What comes between the
  // last product of a tile and the first of the next one is waited for, so it is as short as can be, and a tile
  // that prefetches is another function.
  template <int R, int C, bool prefetches_rows>
  static void row_tile(const ProductTile& t) {
    constexpr int N = C * kBlockVectors;
    const Gemm& g = t.g;
    const bool plain = t.plain(C);
    const std::size_t stride = row_bytes(g), block = g.weight.block_bytes();
    const std::uint8_t* a = t.a(stride);
    const std::int8_t *b = t.b(), *next = t.next;
    std::size_t steps = steps_of(g.weight.k);
    // A column's sum is at hand where other tiles have had it; few rows would wait for it.
    constexpr bool starts = R > 4;
    ProductSums<D, R, C> acc;
    if (starts && plain) acc.start(g.quant + t.row, g.weight.colsum + t.block * kBlockN);
    else acc.clear(g.quant + t.row, 1);
    if constexpr (prefetches_rows) {
      const std::size_t a_row = steps / R < kStepsARow ? steps / R : kStepsARow;
      for (std::size_t r = 0; r < R; ++r) {
        t.prefetch_row<C>(r);
        acc.add(a, stride, b, block, a_row, next, t.prefetched);
        a += a_row * kBlockK * D::kInputBytes;
        b += a_row * kBlockK * kBlockN;
        if (t.prefetched) next += a_row * kBlockK * kBlockN;
      }
      steps -= R * a_row;
    }
    acc.add(a, stride, b, block, steps, next, t.prefetched);
    if (plain) return TileOutput<D, R, N, starts>::store(t, acc.v);
    I sums[R * N];
    acc.store(sums);
    for (std::size_t c = 0; c < N; ++c) finish_rows<D>(g, t.block * kBlockN + c * D::kWidth, t.row, R, sums + c, N);
  }

  // Integer sums of one chunk of a long row.
  template <int R, int C>
  static void raw_tile(const ProductTile& t) {
    constexpr int N = C * kBlockVectors;
    const Gemm& g = t.g;
    const std::size_t first = g.chunk * kChunkK, k = g.weight.k - first < kChunkK ? g.weight.k - first : kChunkK;
    const std::size_t stride = row_bytes(g);
    const std::uint8_t* a = t.a(stride) + first * D::kInputBytes;
    ProductSums<D, R, C> acc;
    RowQuant q[R];
    for (std::size_t r = 0; r < R; ++r) q[r].extra = D::extra(a + r * stride, steps_of(k));
    acc.clear(q, 1);
    acc.add(a, stride, t.b() + first * kBlockN, g.weight.block_bytes(), steps_of(k));
    I sums[R * N];
    acc.store(sums);
    for (std::size_t c = 0; c < N; ++c) finish_raw_rows<D>(g, t.block * kBlockN + c * D::kWidth, t.row, R, sums + c, N);
  }

  // One scale for each group of 128 inputs.
  template <int R, int C, bool prefetches_rows>
  static void group_tile(const ProductTile& t) {
    constexpr int N = C * kBlockVectors;
    const Gemm& g = t.g;
    const std::size_t groups = groups_of(g.weight.k, g.group), padded = g.weight.padded_n(), stride = row_bytes(g);
    const std::size_t column = t.block * kBlockN;
    GroupSums<D, R, C> total;
    total.clear();
    for (std::size_t i = 0; i < groups; ++i) {
      for (std::size_t r = i; prefetches_rows && r < R; r += groups) t.prefetch_row<C>(r);
      const std::size_t first = i * kGroup, k = g.weight.k - first < kGroup ? g.weight.k - first : kGroup;
      ProductSums<D, R, C> acc;
      acc.clear(g.quant + t.row * groups + i, groups);
      acc.add(t.a(stride) + first * D::kInputBytes, stride, t.b() + first * kBlockN, g.weight.block_bytes(), steps_of(k),
              t.prefetched ? t.next + first * kBlockN : nullptr, t.prefetched);
      total.add(acc, g.weight.colsum + i * padded + column, g.quant + t.row * groups + i, groups);
    }
    if (t.plain(C)) return TileOutput<D, R, N, true>::store(t, total.v);
    F sums[R * N];
    total.store(sums);
    for (std::size_t c = 0; c < N; ++c) finish_rows<D>(g, column + c * D::kWidth, t.row, R, sums + c, N);
  }

  template <bool adds>
  static OCTAVO_INLINE void row_output(const ProductTile& t, int c, I sum) {
    const RowOutput<D, adds> to(t);
    to.correct(c, sum);
    to.store(c, sum, D::load(t.g.weight.scale + t.block * kBlockN + c * D::kWidth));
  }

  // One row: the weights are read once and the sums are short, so independent ones along the inputs hide the latency
  // that more rows would.
  static void one_row(const ProductTile& t) { one_row(t, Sequence<kBlockVectors>{}); }
  template <int... c>
  static OCTAVO_INLINE void one_row(const ProductTile& t, Indices<c...>) {
    const std::size_t steps = steps_of(t.g.weight.k), cell = kBlockK * D::kInputBytes;
    const std::uint8_t* a = t.a(0);
    const std::int8_t* b = t.b();
    constexpr std::size_t sums = D::kRowSums;
    I acc[sums][kBlockVectors];
    for (std::size_t i = 0; i < sums; ++i) ((acc[i][c] = D::start(i ? 0 : t.g.quant->extra)), ...);
    std::size_t s = 0;
    for (; s + 4 <= steps; s += 4) {
      if constexpr (kFourSteps<D>) four_steps(acc, D::four_steps(a + s * cell), b + s * 64, Indices<c...>{});
      else
        for (std::size_t i = 0; i < 4; ++i) one_step(acc[i % sums], a + (s + i) * cell, b + (s + i) * 64, Indices<c...>{});
    }
    for (; s < steps; ++s) one_step(acc[0], a + s * cell, b + s * 64, Indices<c...>{});
    if constexpr (sums == 4) ((acc[0][c] = D::add_i(D::add_i(acc[0][c], acc[1][c]), D::add_i(acc[2][c], acc[3][c]))), ...);
    (finish_one_row(t, c, acc[0][c]), ...);
  }
  template <std::size_t sums, int... c>
  static OCTAVO_INLINE void four_steps(I (&acc)[sums][kBlockVectors], I x, const std::int8_t* b, Indices<c...>) {
    (D::template dot_step<0>(acc[0][c], x, D::load_weights(b + c * sizeof(I))), ...);
    (D::template dot_step<1>(acc[1 % sums][c], x, D::load_weights(b + 64 + c * sizeof(I))), ...);
    (D::template dot_step<2>(acc[2 % sums][c], x, D::load_weights(b + 128 + c * sizeof(I))), ...);
    (D::template dot_step<3>(acc[3 % sums][c], x, D::load_weights(b + 192 + c * sizeof(I))), ...);
  }
  template <int... c>
  static OCTAVO_INLINE void one_step(I (&acc)[kBlockVectors], const std::uint8_t* a, const std::int8_t* b, Indices<c...>) {
    if constexpr (D::kAhead) __builtin_prefetch(b + D::kAhead);
    const auto x = D::inputs(a);
    (D::dot_memory(acc[c], x, b + static_cast<std::size_t>(c) * sizeof(I)), ...);
  }
  // Its sum is no array, as TileOutput's are: GCC would keep that in memory.
  static OCTAVO_INLINE void finish_one_row(const ProductTile& t, int c, I total) {
    const Gemm& g = t.g;
    if (t.plain(1)) return g.residual ? row_output<true>(t, c, total) : row_output<false>(t, c, total);
    const I sums[1] = {total};  // of its own: what has an address goes through memory
    finish_rows<D>(g, t.block * kBlockN + static_cast<std::size_t>(c) * D::kWidth, t.row, 1, sums, 1);
  }

  template <ProductKind kind, int R, int C, bool prefetches_rows>
  static constexpr Kernel kernel() {
    if constexpr (kind == ProductKind::kRows) return row_tile<R, C, prefetches_rows>;
    else if constexpr (kind == ProductKind::kGroups) return group_tile<R, C, prefetches_rows>;
    else return raw_tile<R, C>;
  }

  // Of 1 row and more.
  template <ProductKind kind, int C, bool prefetches_rows, int... r>
  static const Kernel* kernels(Indices<r...>) {
    static constexpr Kernel all[] = {kernel<kind, r + 1, C, prefetches_rows>()...};
    return all;
  }

  // Rows in tiles of at most the tallest, as even as they go: 8 are 4 + 4, not 6 + 2. What happens between two tiles
  // is waited for: the divisions come before them all.
  template <ProductKind kind, int C>
  static void rows(const Gemm& g, std::size_t first, std::size_t last, std::size_t block, bool prefetches_rows, Prefetch& prefetch) {
    constexpr int tallest = D::tallest(kind == ProductKind::kGroups, C);
    const std::size_t count = last - first, tiles = (count + tallest - 1) / tallest;
    const Kernel* of = prefetches_rows ? kernels<kind, C, true>(Sequence<tallest>{}) : kernels<kind, C, false>(Sequence<tallest>{});
    const std::size_t few = count / tiles, larger = count % tiles;
    for (std::size_t i = 0, row = first; i < tiles; ++i) {
      const std::size_t height = few + (i < larger), blocks = prefetch.left < prefetch.a_tile ? 0 : prefetch.a_tile;
      of[height - 1]({g, row, block, prefetch.next, blocks});
      prefetch.took(blocks);
      row += height;
    }
  }

  // In tiles of C blocks, and what is left.
  template <ProductKind kind, int C>
  static void panels(const Gemm& g) {
    constexpr std::size_t widest = C, tallest = D::tallest(kind == ProductKind::kGroups, C);
    const std::size_t tiles = (g.rows + tallest - 1) / tallest, at_once = rows_at_once(g.rows), bytes = g.weight.block_bytes();
    const WeightParts parts(g.weight, g.block_begin, g.block_end, tiles, widest, 8);
    // Outputs have left the cache when they are written again; where weights are prefetched, biases of rows may have.
    const bool prefetches_rows = g.rows * (g.block_end - g.block_begin) * kBlockN * sizeof(float) > part_bytes() ||
                                 (g.bias_stride && parts.prefetched);
    for (std::size_t first = g.block_begin; first < g.block_end; first += parts.blocks) {
      const std::size_t last = first + parts.blocks < g.block_end ? first + parts.blocks : g.block_end;
      const std::int8_t* next = parts.next(g.weight, first);
      const std::size_t left = next ? (g.block_end - last < parts.blocks ? g.block_end - last : parts.blocks) : 0;
      // Few tiles prefetch more than one block each.
      Prefetch prefetch{next, left, !parts.few || tiles >= widest ? 1 : tiles == 1 ? widest : (widest + 1) / 2, bytes};
      for (std::size_t row = 0; row < g.rows; row += at_once) {
        const std::size_t until = row + at_once < g.rows ? row + at_once : g.rows;
        std::size_t block = first;
        while (block < last) {
          const std::size_t width = block + widest <= last ? widest : widest > 2 && block + 2 <= last ? 2 : 1;
          if (width == widest) rows<kind, C>(g, row, until, block, prefetches_rows, prefetch);
          else if (width == 2) rows<kind, C < 2 ? 1 : 2>(g, row, until, block, prefetches_rows, prefetch);
          else rows<kind, 1>(g, row, until, block, prefetches_rows, prefetch);
          block += width;
        }
      }
    }
  }

  static void gemm(const Gemm& g) {
    if (g.raw) return panels<ProductKind::kRaw, D::kWidest>(g);
    // Ten sums hide the latency of one: what rows do not bring, columns have to.
    if (g.group && (g.rows <= 4 || g.rows == 8)) return panels<ProductKind::kGroups, D::kWidestOfFewGroups>(g);
    if (g.group) return panels<ProductKind::kGroups, D::kWidestOfGroups>(g);
    if (g.rows == 1) {
      for (std::size_t block = g.block_begin; block < g.block_end; ++block) one_row({g, 0, block});
      return;
    }
    panels<ProductKind::kRows, D::kWidest>(g);
  }
};

// What bounds the above: the products of R rows by C blocks on registers alone, more of them than latency times pipes.
template <class D, int R, int C>
PeakLoop peak_of() {
  constexpr auto run = [](std::size_t turns) {
    ProductSums<D, R, C> acc;
    const RowQuant none{};
    acc.clear(&none, 0);
    for (std::size_t i = 0; i < turns; ++i) acc.spin();
    acc.keep();
  };
  return {run, 2.0 * R * C * kBlockN * kBlockK};
}

}  // namespace
}  // namespace octavo
