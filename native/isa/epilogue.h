// The parts of row quantization and of the epilogue that every instruction set shares. Include it
// inside an anonymous namespace, after activations.h.

// Scale and zero point of one row or group: the definition in docs/architecture.md.
template <class V>
struct RowRange {
  using F = typename V::F;
  using I = typename V::I;

  float scale, inverse;
  std::int32_t zero_point;

  // Over n values; a NaN or an infinity among them gives scale NaN and integers 0.
  static RowRange of(const float* x, std::size_t n) {
    const ValueRange r = seen(x, n);
    if (!r.finite) return {__builtin_nanf(""), 0.0f, 0};
    return from(r.lo, r.hi);
  }

  static ValueRange seen(const float* x, std::size_t n) {
    const Partial p = partial(x, n);
    const std::int32_t hi = V::highest(p.hi);
    const std::uint32_t lo = V::highest_unsigned(p.lo);
    return {float_of(lo) + 0.0f, float_of(static_cast<std::uint32_t>(hi)), hi < kInfinity && lo < kMinusInfinity};
  }

  // A lane's part of the values, by their bits: among integers with a sign the largest is the largest float,
  // and among those without one it is the lowest, or -0. Infinity and NaN lie beyond all numbers of their sign.
  static constexpr std::int32_t kInfinity = 0x7f800000;
  static constexpr std::uint32_t kMinusInfinity = 0xff800000u;
  struct Partial {
    I hi = V::set_i(0), lo = V::set_i(INT32_MIN);
    void see(F x) {
      const I b = V::once(V::bits(x));
      see(b, b);
    }
    void see(const Partial& p) { see(p.hi, p.lo); }
    void see(I high, I low) {
      hi = V::max_i(high, hi);
      lo = V::max_unsigned(low, lo);
    }
  };
  static inline __attribute__((always_inline)) Partial partial(const float* x, std::size_t n) {
    Partial p[4];
    constexpr std::size_t w = V::kWidth;
    std::size_t i = 0;
    for (; i + 4 * w <= n; i += 4 * w) {  // four at once hide the latency
      p[0].see(V::load(x + i));
      p[1].see(V::load(x + i + w));
      p[2].see(V::load(x + i + 2 * w));
      p[3].see(V::load(x + i + 3 * w));
    }
    for (; i + w <= n; i += w) p[0].see(V::load(x + i));
    if (i < n) p[1].see(V::load_n(x + i, static_cast<int>(n - i)));
    p[0].see(p[1]);
    p[2].see(p[3]);
    p[0].see(p[2]);
    return p[0];
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
  static float float_of(std::uint32_t bits) {
    float x;
    __builtin_memcpy(&x, &bits, 4);
    return x;
  }
};

inline std::int32_t zero_pair(std::int32_t z) { return int16_pair(z, z * 128); }

// Of zero point z. A group's sum, of 128 differences of uint8, fits int16.
inline RowQuant row_quant(float scale, std::int32_t z, std::int32_t sum, std::size_t group, std::int32_t extra = 0) {
  return {scale, group ? int16_pair(z, -sum) : zero_pair(z), sum, extra};
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

  inline __attribute__((always_inline)) Finish(const Gemm& gemm, std::size_t first, std::size_t section)
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
    if (g.weight.zero && !g.group) acc = V::sub_i(acc, V::mul_i(zero, V::set_i(q.sum)));
    return acc;
  }

  F scaled(I t, const RowQuant& q) const { return V::mul(V::to_float(t), V::set(q.scale)); }

  // Rows whose sums are at sums[0], sums[step], ...: integers, or of groups floats, which have their
  // scales already. Inlined, or the members above would be read again for each row.
  template <class Sum>
  inline __attribute__((always_inline)) void rows(std::size_t first, std::size_t count, const Sum* sums, std::size_t step) const {
    if (stored_plain(first, count, sums, step)) return;
    switch (g.activation) {  // once for all rows
      case Activation::kNone: return rows<Activation::kNone>(first, count, sums, step);
      case Activation::kRelu: return rows<Activation::kRelu>(first, count, sums, step);
      case Activation::kGelu: return rows<Activation::kGelu>(first, count, sums, step);
      case Activation::kGeluTanh: return rows<Activation::kGeluTanh>(first, count, sums, step);
      case Activation::kSilu: return rows<Activation::kSilu>(first, count, sums, step);
      case Activation::kTanh: return rows<Activation::kTanh>(first, count, sums, step);
      case Activation::kSigmoid: return rows<Activation::kSigmoid>(first, count, sums, step);
    }
  }

 private:
  // Nothing but scales and a bias, all columns there: the hot case.
  bool plain() const {
    return g.activation == Activation::kNone && !g.residual && !g.weight.zero && columns == V::kWidth;
  }
  bool stored_plain(std::size_t first, std::size_t count, const I* sums, std::size_t step) const {
    if (!plain()) return false;
    for (std::size_t r = 0; r < count; ++r) store_plain(sums[r * step], g.quant[first + r], first + r);
    return true;
  }
  bool stored_plain(std::size_t, std::size_t, const F*, std::size_t) const { return false; }
  void store_plain(I acc, const RowQuant& q, std::size_t row) const {
    const F f = scaled(V::correct(acc, colsum, V::set_i(q.pair)), q);
    const F b = g.bias_stride ? V::load(g.bias + row * g.bias_stride + column) : bias;
    V::store(g.out + row * g.out_stride + column, V::fma(f, scale, b));
  }
  template <Activation a, class Sum>
  void rows(std::size_t first, std::size_t count, const Sum* sums, std::size_t step) const {
    for (std::size_t r = 0; r < count; ++r) {
      const F f = with_scale(sums[r * step], first + r);
      keep(Elementwise<V>::apply(a, V::fma(f, scale, bias_of(first + r))), first + r);
    }
  }
  F with_scale(I acc, std::size_t row) const { return scaled(exact(acc, g.quant[row]), g.quant[row]); }
  F with_scale(F f, std::size_t) const { return f; }
  F bias_of(std::size_t row) const {
    return g.bias_stride ? V::load_n(g.bias + row * g.bias_stride + column, columns) : bias;
  }
  void keep(F y, std::size_t row) const {
    if (g.residual) y = V::add(y, V::load_n(g.residual + row * g.residual_stride + column, columns));
    V::store_n(g.out + row * g.out_stride + column, y, columns);
  }
};

// Rows of one column part whose sums (integers, or floats of groups) are at sums[0], sums[step], ... Not
// inlined, so that the activations are in the program once for each instruction set.
template <class V, class Sum>
__attribute__((noinline)) void finish_rows(const Gemm& g, std::size_t column, std::size_t first, std::size_t count,
                                           const Sum* sums, std::size_t step) {
  Finish<V>(g, column, 0).rows(first, count, sums, step);
}
