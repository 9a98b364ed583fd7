// The parts of row quantization and of the epilogue that every instruction set shares. Include it
// inside an anonymous namespace, after elementwise.h.

inline std::size_t groups_of(std::size_t k, std::size_t group) {
  return group ? (k + group - 1) / group : 1;
}

// Scale and zero point of one row or group: the definition in docs/architecture.md.
template <class V>
struct RowRange {
  using F = typename V::F;

  float scale, inverse;
  std::int32_t zero_point;

  // Over n values; a NaN or an infinity among them gives scale NaN and integers 0.
  static RowRange of(const float* x, std::size_t n) {
    const F zero = V::set(0.0f);
    F lo[2] = {zero, zero}, hi[2] = {zero, zero}, odd[2] = {zero, zero};
    constexpr std::size_t w = V::kWidth;
    std::size_t i = 0;
    for (; i + 2 * w <= n; i += 2 * w)
      for (std::size_t j = 0; j < 2; ++j) see(V::load(x + i + j * w), lo[j], hi[j], odd[j]);
    for (; i < n; i += w)
      see(V::load_n(x + i, n - i < w ? static_cast<int>(n - i) : static_cast<int>(w)), lo[0], hi[0], odd[0]);
    if (V::any_nan(V::add(odd[0], odd[1]))) return {__builtin_nanf(""), 0.0f, 0};
    return from(V::lowest(V::min(lo[0], lo[1])), V::highest(V::max(hi[0], hi[1])));
  }

  static RowRange from(float lo, float hi) {
    float scale = hi / 255.0f - lo / 255.0f;
    if (scale < 1e-30f) scale = 1.0f;
    const float inverse = 1.0f / scale;
    const float z = __builtin_rintf(-lo * inverse);
    return {scale, inverse, static_cast<std::int32_t>(z > 255.0f ? 255.0f : z)};
  }

  bool finite() const { return scale == scale; }

 private:
  static void see(F x, F& lo, F& hi, F& odd) {
    lo = V::min(x, lo);
    hi = V::max(x, hi);
    odd = V::fma(x, V::set(0.0f), odd);  // NaN from infinity and NaN, else 0
  }
};

inline std::int32_t zero_pair(std::int32_t z) {
  return static_cast<std::int32_t>((static_cast<std::uint32_t>(z * 128) << 16) |
                                   (static_cast<std::uint32_t>(z) & 0xffffu));
}

// What one column part (kWidth columns) of the output needs, kept in registers over many rows.
template <class V>
struct Finish {
  using F = typename V::F;
  using I = typename V::I;

  F scale, bias;
  I colsum, zero;

  const Gemm& g;
  std::size_t column;
  int columns;  // valid ones, up to kWidth

  Finish(const Gemm& gemm, std::size_t first, std::size_t section)
      : g(gemm), column(first),
        columns(first >= gemm.weight.n ? 0
                : gemm.weight.n - first < V::kWidth ? static_cast<int>(gemm.weight.n - first)
                                                    : V::kWidth) {
    scale = V::load(g.weight.scale + column);
    colsum = V::load_i(g.weight.colsum + section * g.weight.padded_n() + column);
    zero = g.weight.zero ? V::load_i(g.weight.zero + column) : V::set_i(0);
    bias = g.bias && g.bias_stride == 0 && columns > 0 ? V::load_n(g.bias + column, columns) : V::set(0.0f);
  }

  // The exact sum less its zero points.
  I exact(I acc, const RowQuant& q) const {
    acc = V::correct(acc, colsum, V::set_i(q.pair));
    if (g.weight.zero) acc = V::sub_i(acc, V::mul_i(zero, V::set_i(q.sum)));
    return acc;
  }

  F scaled(I t, const RowQuant& q) const { return V::mul(V::to_float(t), V::set(q.scale)); }

  // f: the sum times the row's scale.
  void store(F f, std::size_t row) const {
    F b = bias;
    if (g.bias_stride) b = V::load_n(g.bias + row * g.bias_stride + column, columns);
    F y = Elementwise<V>::apply(g.activation, V::fma(f, scale, b));
    if (g.residual) y = V::add(y, V::load_n(g.residual + row * g.residual_stride + column, columns));
    V::store_n(g.out + row * g.out_stride + column, y, columns);
  }
};
