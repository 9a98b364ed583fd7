// Rows with a scale for each group of 128 inputs, on AMX: two steps of tiles a group, whose integers go
// to memory and are added to float sums there while the next group's tiles work. Include it inside
// amx.cpp's anonymous namespace.

// 32 rows by 2 blocks of float sums, and the group that is still to be added.
struct GroupSums {
  const Gemm& g;
  const std::size_t groups;
  alignas(64) std::int32_t sums[2][4][kTile][kBlockN];
  alignas(64) float total[4][kTile][kBlockN];
  int turn = 0;
  std::size_t row = 0, block = 0, second = 0, waiting = 0, done = kUnits;
  static constexpr std::size_t kUnits = 4 * (kTile / kSlice);

  explicit GroupSums(const Gemm& gemm) : g(gemm), groups(groups_of(gemm.weight.k, gemm.group)) {}

  // `columns` of the two blocks count; where it is one, both are the same.
  void begin(std::size_t first_row, std::size_t first_block, std::size_t columns) {
    row = first_row;
    block = first_block;
    second = first_block + columns - 1;
    for (auto& tile : total)
      for (auto& line : tile) _mm512_store_ps(line, _mm512_setzero_ps());
  }

  // Takes the tiles' sums of one group.
  OCTAVO_INLINE void take(std::size_t group) {
    store_sums(&sums[turn][0][0][0]);
    turn ^= 1;
    waiting = group;
    done = 0;
  }
  OCTAVO_INLINE void work(std::size_t until) {
    for (; done < until; ++done) unit(done);
  }

  void store(std::size_t rows, std::size_t columns) const {
    for (std::size_t tile = 0; tile < 4; ++tile) {
      if (tile % 2 >= columns) continue;
      const VnniFinish finish(g, (block + tile % 2) * kBlockN, 0);
      for (std::size_t r = 0; r < kTile && tile / 2 * kTile + r < rows; ++r)
        finish.store(_mm512_load_ps(total[tile][r]), row + tile / 2 * kTile + r);
    }
  }

 private:
  OCTAVO_INLINE void unit(std::size_t i) {
    const std::size_t tile = i / (kTile / kSlice), slice = i % (kTile / kSlice) * kSlice;
    const std::size_t column = (tile % 2 ? second : block) * kBlockN, first = row + tile / 2 * kTile + slice;
    const __m512i colsum = _mm512_load_si512(g.weight.colsum + waiting * g.weight.padded_n() + column);
    const __m512i zero = g.weight.zero ? _mm512_load_si512(g.weight.zero + column) : _mm512_setzero_si512();
    const RowQuant* q = g.quant + first * groups + waiting;
    const auto* from = reinterpret_cast<const __m512i*>(sums[turn ^ 1][tile][slice]);
    float(*to)[kBlockN] = &total[tile][slice];
    if (g.weight.zero) add<true>(from, colsum, zero, q, to);
    else add<false>(from, colsum, zero, q, to);
  }
  // Rows behind the last one are in the panel's and the scales' padding; what they give is not stored.
  template <bool affine>
  OCTAVO_INLINE void add(const __m512i* from, __m512i colsum, __m512i zero, const RowQuant* q, float (*to)[kBlockN]) const {
#pragma GCC unroll 8
    for (std::size_t r = 0; r < kSlice; ++r) {
      const RowQuant& one = q[r * groups];
      __m512i t = Avx512::correct(from[r], colsum, _mm512_set1_epi32(one.pair));
      if constexpr (affine) t = _mm512_dpwssd_epi32(t, zero, _mm512_set1_epi32(minus_sum(one)));
      _mm512_store_ps(to[r], _mm512_fmadd_ps(_mm512_cvtepi32_ps(t), _mm512_set1_ps(one.scale), _mm512_load_ps(to[r])));
    }
  }
};

inline void group_square(const std::uint8_t* a, std::size_t stride, const BlockTiles (&b)[2], GroupSums& sums, const std::int8_t* next, std::size_t lines) {
  constexpr std::size_t kSteps = kGroup / kPanelK;
  const std::size_t steps = stride / kPanelK;
  for (std::size_t s = 0; s < steps; ++s) {
    if (s % kSteps == 0) clear_sums();
    const bool last = s + 1 == steps;
    if (next) ask(next + s * lines * 64, lines);
    square_step(a + s * kPanelK, stride, last ? b[0].last : b[0].data + s * kTileBytes, last ? b[1].last : b[1].data + s * kTileBytes);
    sums.work(s % kSteps == 0 && !last ? GroupSums::kUnits / 2 : GroupSums::kUnits);
    if (s % kSteps == kSteps - 1 || last) sums.take(s / kSteps);
  }
  sums.work(GroupSums::kUnits);
}

// As squares().
void group_squares(const Gemm& g, std::size_t rows) {
  TileConfig(kTile).load();
  GroupSums sums(g);
  const std::size_t tiles = (rows + 2 * kTile - 1) / (2 * kTile), stride = round_up(g.weight.k, kPanelK);
  const Far far(g.weight, g.block_begin, g.block_end, tiles, 2, 1);
  BlockTiles b[2];
  for (std::size_t first = g.block_begin; first < g.block_end; first += far.blocks) {
    const std::size_t last = first + far.blocks < g.block_end ? first + far.blocks : g.block_end;
    const std::int8_t *next = far.next(g.weight, first), *end = g.weight.data + g.block_end * g.weight.block_bytes();
    const std::size_t lines = (32 + tiles - 1) / tiles, asked = lines * 64 * stride / kPanelK;
    for (std::size_t row = 0; row < rows; row += 2 * kTile)
      for (std::size_t block = first; block < last; block += 2) {
        const std::size_t columns = last - block < 2 ? 1 : 2;
        b[0].point(g.weight, block);
        b[1].point(g.weight, block + columns - 1);
        sums.begin(row, block, columns);
        if (next && next + asked > end) next = nullptr;
        group_square(g.panel + row * stride, stride, b, sums, next, lines);
        if (next) next += asked;
        sums.store(rows - row < 2 * kTile ? rows - row : 2 * kTile, columns);
      }
  }
  _tile_release();
}
