// Float32 products for layers that stay float: one chain of fused multiply-adds for each output, in
// ascending order of inputs, so that every instruction set gives the same bits. Include it inside an
// anonymous namespace, after a vec_*.h.

template <class V>
struct FloatProduct {
  using F = typename V::F;
  // Vectors of a block of 16 columns. Tiles hold 16 sums with AVX-512, 8 with AVX2: enough chains to hide
  // an addition's latency.
  static constexpr int kParts = static_cast<int>(kBlockN) / V::kWidth;

  // R rows by C blocks. The loops over rows and columns unroll; sums stay in registers.
  template <int R, int C>
  static void tile(const FloatGemm& g, std::size_t row, std::size_t block) {
    const std::size_t step = g.k * kBlockN;
    const float* w = g.weight + block * step;
    const float* x = g.x + row * g.x_stride;
    F acc[R][C * kParts];
    for (int r = 0; r < R; ++r)
      for (int c = 0; c < C * kParts; ++c)
        acc[r][c] = g.bias ? V::load(g.bias + (row + static_cast<std::size_t>(r)) * g.bias_stride + column(block, c)) : V::set(0.0f);
    for (std::size_t k = 0; k < g.k; ++k) {
      F v[C * kParts];
      for (int c = 0; c < C * kParts; ++c)
        v[c] = V::load(w + static_cast<std::size_t>(c / kParts) * step + k * kBlockN + static_cast<std::size_t>(c % kParts * V::kWidth));
      for (int r = 0; r < R; ++r) {
        const F a = V::set(x[static_cast<std::size_t>(r) * g.x_stride + k]);
        for (int c = 0; c < C * kParts; ++c) acc[r][c] = V::fma(a, v[c], acc[r][c]);
      }
    }
    for (int r = 0; r < R; ++r)
      for (int c = 0; c < C * kParts; ++c) V::store(g.out + (row + static_cast<std::size_t>(r)) * g.out_stride + column(block, c), acc[r][c]);
  }

  static std::size_t column(std::size_t block, int c) { return block * kBlockN + static_cast<std::size_t>(c * V::kWidth); }

  template <int C>
  static void rows(const FloatGemm& g, std::size_t block) {
    std::size_t m = 0;
    for (; m + 4 <= g.rows; m += 4) tile<4, C>(g, m, block);
    for (; m + 2 <= g.rows; m += 2) tile<2, C>(g, m, block);
    if (m < g.rows) tile<1, C>(g, m, block);
  }

  static void gemm(const FloatGemm& g) {
    constexpr int kWide = V::kWidth == 16 ? 4 : V::kWidth == 8 ? 1 : 1;
    constexpr std::size_t kRowWide = V::kWidth == 1 ? 1 : 2 * static_cast<std::size_t>(kWide) * (V::kWidth == 8 ? 2 : 1);
    std::size_t block = g.block_begin;
    if (g.rows == 1)
      for (; block + kRowWide <= g.block_end; block += kRowWide) tile<1, static_cast<int>(kRowWide)>(g, 0, block);
    for (; block + kWide <= g.block_end; block += kWide) rows<kWide>(g, block);
    for (; block < g.block_end; ++block) rows<1>(g, block);
  }
};
