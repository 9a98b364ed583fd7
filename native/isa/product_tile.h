// A tile of the int8 product on 512-bit VNNI, and what its sums become. Include it inside an anonymous namespace,
// after quantize_rows_avx512.h.

struct VnniTile {
  const Gemm& g;
  std::size_t row, block;  // first of each
  const std::int8_t* next = nullptr;  // blocks to ask for meanwhile, if any
  std::size_t asks = 0;               // how many

  const std::uint8_t* a() const { return g.panel + row * round_up(g.weight.k, kPanelK); }
  const std::int8_t* b() const { return g.weight.data + block * g.weight.block_bytes(); }
  float* out(std::size_t r, std::size_t c) const { return g.out + (row + r) * g.out_stride + (block + c) * kBlockN; }

  // Whether nothing but scales, a bias and a residual stands between the sums and the output, and all
  // columns are there: then they go from registers to the output.
  bool plain(std::size_t blocks) const {
    return g.activation == Activation::kNone && !g.weight.zero && (block + blocks) * kBlockN <= g.weight.n;
  }
  // Asks for the lines of a row's outputs, and of a bias of its own, that its stores would wait for.
  template <std::size_t C>
  OCTAVO_INLINE void ask_for_row(std::size_t r) const {
    for (std::size_t c = 0; c < C; ++c) __builtin_prefetch(out(r, c), 1);
    if (!g.bias_stride) return;
    for (std::size_t c = 0; c < C; ++c) __builtin_prefetch(g.bias + (row + r) * g.bias_stride + (block + c) * kBlockN);
  }
};

// What the sums of a row of a plain() tile become outputs by, in the order of Finish. These are copies: what is
// read through the tile would be read again after each store.
template <bool adds>
struct VnniOutput {
  const float *bias, *residual;
  std::size_t bias_stride, residual_stride, out_stride;
  const RowQuant* quant;
  const std::int32_t* colsum;
  float* out;
  __m512 scale;

  OCTAVO_INLINE explicit VnniOutput(const VnniTile& t) {
    alignas(64) static const float zeros[4 * kBlockN] = {};
    const Gemm& g = t.g;
    const std::size_t column = t.block * kBlockN;
    bias_stride = g.bias ? g.bias_stride : 0;
    bias = g.bias ? g.bias + t.row * bias_stride + column : zeros;
    residual_stride = g.residual_stride;
    residual = adds ? g.residual + t.row * residual_stride + column : nullptr;
    out_stride = g.out_stride;
    out = t.out(0, 0);
    quant = g.quant + t.row;
    colsum = g.weight.colsum + column;
    scale = _mm512_set1_ps(quant->scale);
  }
  OCTAVO_INLINE void next_row() {
    bias += bias_stride;
    if (adds) residual += residual_stride;
    out += out_stride;
    scale = _mm512_set1_ps((++quant)->scale);
  }
  // Less zero points times column sums, unless it has begun with them.
  OCTAVO_INLINE void correct(int c, __m512i& sum) const {
    sum = Avx512::correct(sum, _mm512_load_si512(colsum + c * kBlockN), _mm512_set1_epi32(quant->pair));
  }
  OCTAVO_INLINE void correct(int, __m512&) const {}
  OCTAVO_INLINE void store(int c, __m512i sum, __m512 weight_scale) const {
    store(c, _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale), weight_scale);
  }
  // Of groups, which have their scales already.
  OCTAVO_INLINE void store(int c, __m512 sum, __m512 weight_scale) const {
    const std::size_t at = static_cast<std::size_t>(c) * kBlockN;
    __m512 y = _mm512_fmadd_ps(sum, weight_scale, _mm512_loadu_ps(bias + at));
    if (adds) y = _mm512_add_ps(y, _mm512_loadu_ps(residual + at));
    _mm512_storeu_ps(out + at, y);
  }
};

// Writes the sums v of R rows by C blocks, where the tile is plain(). `corrected`: nothing is left to subtract
// from them, as start() began them, or groups did it.
template <int R, int C, bool corrected>
struct VnniStore {
  template <class Sum>
  static OCTAVO_INLINE void all(const VnniTile& t, Sum (&v)[R * C]) {
    if (t.g.residual) rows<true>(t, v, Sequence<R>{}, Sequence<C>{});
    else rows<false>(t, v, Sequence<R>{}, Sequence<C>{});
  }

 private:
  template <bool adds, class Sum, int... r, int... c>
  static OCTAVO_INLINE void rows(const VnniTile& t, Sum (&v)[R * C], Indices<r...>, Indices<c...> columns) {
    const float* scales = t.g.weight.scale + t.block * kBlockN;
    const __m512 scale[C] = {_mm512_loadu_ps(scales + c * kBlockN)...};
    VnniOutput<adds> to(t);
    (row<r>(to, v, scale, columns), ...);
  }
  // Row after row: GCC would convert all sums before it stores the first.
  template <class Sum>
  static OCTAVO_INLINE void in_turn(Sum& sum) { __asm__ volatile("" : "+v"(sum) : : "memory"); }
  template <int r, bool adds, class Sum, int... c>
  static OCTAVO_INLINE void row(VnniOutput<adds>& to, Sum (&v)[R * C], const __m512 (&scale)[C], Indices<c...>) {
    if (corrected) (in_turn(v[r * C + c]), ...);
    else (to.correct(c, v[r * C + c]), ...);
    (to.store(c, v[r * C + c], scale[c]), ...);
    if (r + 1 < R) to.next_row();
  }
};
