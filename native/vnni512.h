// The int8 product on 512-bit VNNI. Include it inside an anonymous namespace, after simd512.h.

template <int... i>
using Indices = std::integer_sequence<int, i...>;
template <int n>
using Sequence = std::make_integer_sequence<int, n>;

#define OCTAVO_INLINE inline __attribute__((always_inline))
#define OCTAVO_INLINE_LAMBDA __attribute__((always_inline))

OCTAVO_INLINE void dpbusd(__m512i& acc, __m512i a, __m512i b) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
}

OCTAVO_INLINE void dpwssd(__m512i& acc, __m512i a, const std::int32_t* b) {
  __asm__("vpdpwssd %2, %1, %0" : "+v"(acc) : "v"(a), "m"(*reinterpret_cast<const __m512i*>(b)));
}

using VnniFinish = Finish<Avx512>;

inline __m512i broadcast4(const std::uint8_t* p) {
  std::int32_t four;
  __builtin_memcpy(&four, p, 4);
  return _mm512_set1_epi32(four);
}

struct VnniTile {
  const Gemm& g;
  std::size_t row, block;  // first of each
  const std::int8_t* next = nullptr;  // blocks to ask for meanwhile
  std::size_t asks = 1;               // how many: 1 to 4
  bool far_out = false;               // whether the output is too large to be in a cache

  const std::uint8_t* a() const { return g.panel + row * round_up(g.weight.k, kPanelK); }
  const std::int8_t* b() const { return g.weight.data + block * g.weight.block_bytes(); }
  float* out(std::size_t r, std::size_t c) const { return g.out + (row + r) * g.out_stride + (block + c) * kBlockN; }

  // Whether nothing but scales, a bias and a residual stands between the sums and the output, and all
  // columns are there: then they go from registers to the output.
  bool plain(std::size_t blocks) const {
    return g.activation == Activation::kNone && !g.weight.zero && (block + blocks) * kBlockN <= g.weight.n;
  }
  // Asks for the lines of an output's row that its stores would wait for.
  template <std::size_t C>
  OCTAVO_INLINE void ask_for_output(std::size_t r) const {
    for (std::size_t c = 0; c < C; ++c) __builtin_prefetch(out(r, c), 1);
  }
};

// Of one row of a plain() tile: what its sums become outputs by, in the order of Finish. What belongs to
// columns is read again for each row: sums, and the scales of columns, leave no registers for it.
template <bool adds>
struct VnniOutput {
  const float *bias, *residual;
  float* out;
  __m512i pair;
  __m512 scale;

  OCTAVO_INLINE VnniOutput(const VnniTile& t, std::size_t r) {
    alignas(64) static const float zeros[4 * kBlockN] = {};
    const Gemm& g = t.g;
    const std::size_t column = t.block * kBlockN, row = t.row + r;
    bias = g.bias ? g.bias + row * g.bias_stride + column : zeros;
    residual = adds ? g.residual + row * g.residual_stride + column : nullptr;
    out = t.out(r, 0);
    pair = _mm512_set1_epi32(g.quant[row].pair);
    scale = _mm512_set1_ps(g.quant[row].scale);
  }
  OCTAVO_INLINE void store(int c, __m512i sum, const std::int32_t* colsum, __m512 weight_scale) const {
    dpwssd(sum, pair, colsum + c * kBlockN);
    store(c, _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale), colsum, weight_scale);
  }
  // Of groups, which have their scales already.
  OCTAVO_INLINE void store(int c, __m512 sum, const std::int32_t*, __m512 weight_scale) const {
    const std::size_t at = static_cast<std::size_t>(c) * kBlockN;
    __m512 y = _mm512_fmadd_ps(sum, weight_scale, _mm512_loadu_ps(bias + at));
    if (adds) y = _mm512_add_ps(y, _mm512_loadu_ps(residual + at));
    _mm512_storeu_ps(out + at, y);
  }
};

// Writes the sums v of R rows by C blocks, where the tile is plain().
template <int R, int C>
struct VnniStore {
  template <class Sum>
  static OCTAVO_INLINE void all(const VnniTile& t, Sum (&v)[R * C]) {
    if (t.g.residual) rows<true>(t, v, Sequence<R>{}, Sequence<C>{});
    else rows<false>(t, v, Sequence<R>{}, Sequence<C>{});
  }

 private:
  template <bool adds, class Sum, int... r, int... c>
  static OCTAVO_INLINE void rows(const VnniTile& t, Sum (&v)[R * C], Indices<r...>, Indices<c...> columns) {
    const Weight& w = t.g.weight;
    const std::size_t column = t.block * kBlockN;
    const __m512 scale[C] = {_mm512_loadu_ps(w.scale + column + c * kBlockN)...};
    (row<r>(VnniOutput<adds>(t, r), v, w.colsum + column, scale, columns), ...);
  }
  template <int r, bool adds, class Sum, int... c>
  static OCTAVO_INLINE void row(const VnniOutput<adds>& of, Sum (&v)[R * C], const std::int32_t* colsum, const __m512 (&scale)[C],
                                Indices<c...>) {
    (of.store(c, v[r * C + c], colsum, scale[c]), ...);
  }
};

// Sums of R rows by C blocks of 16 columns. Every index is a constant for the compiler's front end
// (fold expressions, not loops): only then do all sums stay in registers.
template <int R, int C>
struct VnniSums {
  __m512i v[R * C];

  using Rows = Sequence<R>;
  using Columns = Sequence<C>;

  OCTAVO_INLINE void clear() { clear(Sequence<R * C>{}); }
  OCTAVO_INLINE void add(const std::uint8_t* a, std::size_t stride, const std::int8_t* b, std::size_t block, std::size_t steps) {
    for (std::size_t s = 0; s < steps; ++s) step(a + s * 4, stride, b + s * 64, block, Rows{}, Columns{});
  }
  // Beside it asks for the lines of `next`, one a step: weights of the next columns, on their way from
  // the L3 cache or memory while these are multiplied.
  OCTAVO_INLINE void add(const std::uint8_t* a, std::size_t stride, const std::int8_t* b, std::size_t block, std::size_t steps,
                         const std::int8_t* next, std::size_t asks) {
    if (!next) return add(a, stride, b, block, steps);
    if (asks == 1) return add_asking<1>(a, stride, b, block, steps, next);
    if (asks == 2) return add_asking<2>(a, stride, b, block, steps, next);
    if (asks == 3) return add_asking<3>(a, stride, b, block, steps, next);
    add_asking<4>(a, stride, b, block, steps, next);
  }

  // To memory, for the epilogue's loops: a variable index into `v` itself would keep it there always.
  OCTAVO_INLINE void store(__m512i* to) const { store(to, Sequence<R * C>{}); }

  // For vnni_peak: the products of registers.
  OCTAVO_INLINE void spin() { spin(Sequence<R * C>{}); }
  OCTAVO_INLINE void keep() { keep(Sequence<R * C>{}); }

 private:
  template <int N>
  OCTAVO_INLINE void add_asking(const std::uint8_t* a, std::size_t stride, const std::int8_t* b, std::size_t block, std::size_t steps,
                                const std::int8_t* next) {
    for (std::size_t s = 0; s < steps; ++s) {
      ask(next + s * 64, block, Sequence<N>{});
      step(a + s * 4, stride, b + s * 64, block, Rows{}, Columns{});
    }
  }
  template <int... i>
  static OCTAVO_INLINE void ask(const std::int8_t* at, std::size_t block, Indices<i...>) {
    (_mm_prefetch(at + static_cast<std::size_t>(i) * block, _MM_HINT_T1), ...);
  }
  template <int... i>
  OCTAVO_INLINE void spin(Indices<i...>) {
    const __m512i one = _mm512_set1_epi32(0x01010101);
    (dpbusd(v[i], one, one), ...);
  }
  template <int... i>
  OCTAVO_INLINE void keep(Indices<i...>) {
    (keep_one(v[i]), ...);
  }
  static OCTAVO_INLINE void keep_one(__m512i x) { __asm__ volatile("" : : "v"(x)); }
  template <int... i>
  OCTAVO_INLINE void store(__m512i* to, Indices<i...>) const {
    ((to[i] = v[i]), ...);
  }
  template <int... i>
  OCTAVO_INLINE void clear(Indices<i...>) {
    ((v[i] = _mm512_setzero_si512()), ...);
  }
  template <int... r, int... c>
  OCTAVO_INLINE void step(const std::uint8_t* a, std::size_t stride, const std::int8_t* b, std::size_t block, Indices<r...>, Indices<c...> columns) {
    const __m512i w[C] = {_mm512_load_si512(b + static_cast<std::size_t>(c) * block)...};
    (row<r>(broadcast4(a + static_cast<std::size_t>(r) * stride), w, columns), ...);
  }
  template <int r, int... c>
  OCTAVO_INLINE void row(__m512i x, const __m512i (&w)[C], Indices<c...>) {
    (dpbusd(v[r * C + c], x, w[c]), ...);
  }
};

inline std::size_t steps_of(std::size_t k) { return (k + kBlockK - 1) / kBlockK; }

// Steps between the rows of a far output that are asked for (fewer, where there are not so many): all of it
// at once would keep weights waiting.
constexpr std::size_t kStepsARow = 4;

// One scale for each row.
template <int R, int C>
void vnni_tile(const VnniTile& t) {
  const Gemm& g = t.g;
  const std::size_t stride = round_up(g.weight.k, kPanelK), steps = steps_of(g.weight.k);
  VnniSums<R, C> acc;
  const auto add = [&](std::size_t from, std::size_t to) OCTAVO_INLINE_LAMBDA {
    acc.add(t.a() + from * kBlockK, stride, t.b() + from * kBlockK * kBlockN, g.weight.block_bytes(), to - from,
            t.next ? t.next + from * kBlockK * kBlockN : nullptr, t.asks);
  };
  acc.clear();
  std::size_t done = 0;
  if (t.far_out) {
    const std::size_t a_row = steps / R < kStepsARow ? steps / R : kStepsARow;
    for (std::size_t r = 0; r < R; ++r, done += a_row) {
      t.ask_for_output<C>(r);
      add(done, done + a_row);
    }
  }
  add(done, steps);
  if (t.plain(C)) return VnniStore<R, C>::all(t, acc.v);
  __m512i sums[R * C];
  acc.store(sums);
  for (std::size_t c = 0; c < C; ++c) finish_rows<Avx512>(g, (t.block + c) * kBlockN, t.row, R, sums + c, C);
}

// Integer sums of one chunk of a long row.
template <int R, int C>
void vnni_raw_tile(const VnniTile& t) {
  const Gemm& g = t.g;
  const std::size_t first = g.chunk * kChunkK, k = g.weight.k - first < kChunkK ? g.weight.k - first : kChunkK;
  VnniSums<R, C> acc;
  acc.clear();
  acc.add(t.a() + first, round_up(g.weight.k, kPanelK), t.b() + first * kBlockN, g.weight.block_bytes(), steps_of(k));
  __m512i sums[R * C];
  acc.store(sums);
  for (int c = 0; c < C; ++c) {
    const VnniFinish finish(g, (t.block + static_cast<std::size_t>(c)) * kBlockN, g.chunk);
    for (int r = 0; r < R; ++r) {
      const std::size_t row = t.row + static_cast<std::size_t>(r);
      _mm512_mask_storeu_epi32(g.raw + row * g.raw_stride + finish.column, Avx512::first(finish.columns),
                               Avx512::correct(sums[r * C + c], finish.colsum, _mm512_set1_epi32(g.quant[row].pair)));
    }
  }
}

// The float sums of rows with groups, beside VnniSums in registers: 7 rows by 2 blocks fill them.
template <int R, int C>
struct VnniGroups {
  __m512 v[R * C];

  OCTAVO_INLINE void clear() { clear(Sequence<R * C>{}); }
  // Adds one group: q of the first row, `groups` apart from row to row.
  OCTAVO_INLINE void add(const VnniSums<R, C>& acc, const std::int32_t* colsum, const RowQuant* q, std::size_t groups) {
    add(acc, colsum, q, groups, Sequence<R>{}, Sequence<C>{});
  }
  OCTAVO_INLINE void store(__m512* to) const { store(to, Sequence<R * C>{}); }

 private:
  template <int... i>
  OCTAVO_INLINE void clear(Indices<i...>) {
    ((v[i] = _mm512_setzero_ps()), ...);
  }
  template <int... i>
  OCTAVO_INLINE void store(__m512* to, Indices<i...>) const {
    ((to[i] = v[i]), ...);
  }
  template <int... r, int... c>
  OCTAVO_INLINE void add(const VnniSums<R, C>& acc, const std::int32_t* colsum, const RowQuant* q, std::size_t groups,
                         Indices<r...>, Indices<c...> columns) {
    const __m512i sums[C] = {_mm512_load_si512(colsum + c * kBlockN)...};
    (row<r>(acc, sums, q[static_cast<std::size_t>(r) * groups], columns), ...);
  }
  template <int r, int... c>
  OCTAVO_INLINE void row(const VnniSums<R, C>& acc, const __m512i (&sums)[C], const RowQuant& q, Indices<c...>) {
    const __m512i pair = _mm512_set1_epi32(q.pair);
    const __m512 scale = _mm512_set1_ps(q.scale);
    ((v[r * C + c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(Avx512::correct(acc.v[r * C + c], sums[c], pair)), scale, v[r * C + c])), ...);
  }
};

// One scale for each group of 128 inputs.
template <int R, int C>
void vnni_group_tile(const VnniTile& t) {
  const Gemm& g = t.g;
  const std::size_t groups = groups_of(g.weight.k, g.group), padded = g.weight.padded_n(), stride = round_up(g.weight.k, kPanelK);
  const std::size_t column = t.block * kBlockN;
  VnniGroups<R, C> total;
  total.clear();
  for (std::size_t i = 0; i < groups; ++i) {
    for (std::size_t r = i; t.far_out && r < R; r += groups) t.ask_for_output<C>(r);
    const std::size_t first = i * kGroup, k = g.weight.k - first < kGroup ? g.weight.k - first : kGroup;
    VnniSums<R, C> acc;
    acc.clear();
    acc.add(t.a() + first, stride, t.b() + first * kBlockN, g.weight.block_bytes(), steps_of(k),
            t.next ? t.next + first * kBlockN : nullptr, t.asks);
    total.add(acc, g.weight.colsum + i * padded + column, g.quant + t.row * groups + i, groups);
  }
  if (t.plain(C)) return VnniStore<R, C>::all(t, total.v);
  __m512 sums[R * C];
  total.store(sums);
  for (std::size_t c = 0; c < C; ++c) finish_rows<Avx512>(g, (t.block + c) * kBlockN, t.row, R, sums + c, C);
}

template <bool adds>
OCTAVO_INLINE void vnni_row_output(const VnniTile& t, __m512i sum) {
  const std::size_t column = t.block * kBlockN;
  VnniOutput<adds>(t, 0).store(0, sum, t.g.weight.colsum + column, _mm512_loadu_ps(t.g.weight.scale + column));
}

// One row: the weights are read once and the sums are short, so four independent ones along the
// inputs hide the latency that more rows would. Its sum is no array, as VnniStore's are: GCC would
// keep that in memory.
inline void vnni_row(const VnniTile& t) {
  const Gemm& g = t.g;
  const std::size_t steps = steps_of(g.weight.k);
  const std::uint8_t* a = t.a();
  const std::int8_t* b = t.b();
  __m512i acc[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
  std::size_t s = 0;
  for (; s + 4 <= steps; s += 4)
    for (std::size_t i = 0; i < 4; ++i) {
      const __m512i x = broadcast4(a + (s + i) * 4);
      __asm__("vpdpbusd %2, %1, %0" : "+v"(acc[i]) : "v"(x), "m"(*reinterpret_cast<const __m512i*>(b + (s + i) * 64)));
    }
  for (; s < steps; ++s) dpbusd(acc[0], broadcast4(a + s * 4), _mm512_load_si512(b + s * 64));
  const __m512i total = _mm512_add_epi32(_mm512_add_epi32(acc[0], acc[1]), _mm512_add_epi32(acc[2], acc[3]));
  if (t.plain(1)) return t.g.residual ? vnni_row_output<true>(t, total) : vnni_row_output<false>(t, total);
  const __m512i sums[1] = {total};  // of its own: what has an address goes through memory
  finish_rows<Avx512>(g, t.block * kBlockN, t.row, 1, sums, 1);
}

using VnniKernel = void (*)(const VnniTile&);

enum class VnniKind { kRows, kGroups, kRaw };

// Rows of the tallest tile. Sums of groups take twice the registers: 7 by 2 or 4 by 3.
template <VnniKind kind, int C>
constexpr std::size_t kTallest = kind != VnniKind::kGroups ? 6 : C == 3 ? 4 : 7;

template <VnniKind kind, int R, int C>
constexpr VnniKernel vnni_kernel() {
  if constexpr (kind == VnniKind::kRows) return vnni_tile<R, C>;
  else if constexpr (kind == VnniKind::kGroups) return vnni_group_tile<R, C>;
  else return vnni_raw_tile<R, C>;
}

template <VnniKind kind, int C>
VnniKernel vnni_kernel(std::size_t rows) {
  constexpr int most = static_cast<int>(kTallest<kind, C>);
  static constexpr VnniKernel kernels[] = {vnni_kernel<kind, 1, C>(), vnni_kernel<kind, 2, C>(), vnni_kernel<kind, 3, C>(),
                                           vnni_kernel<kind, 4, C>(), vnni_kernel<kind, most < 5 ? most : 5, C>(),
                                           vnni_kernel<kind, most < 6 ? most : 6, C>(), vnni_kernel<kind, most, C>()};
  return kernels[rows - 1];
}

// Columns are taken in parts whose weights stay in the L2 cache while all rows pass: a quarter of it,
// beside rows and outputs. While one part is used, the next is asked for.
inline std::size_t part_bytes() {
  static const std::size_t quarter = l2_cache_bytes() / 4;
  return quarter;
}
constexpr std::size_t kFewBytes = 96 << 10;

struct Far {
  std::size_t blocks;  // of a part
  std::size_t end;
  bool ask, few;

  // `width`: blocks that a kernel takes at once. Up to `few_tiles` of rows do so little with a weight
  // that it is asked for even where it would fit the cache alone: other layers have been there since.
  Far(const Weight& w, std::size_t begin, std::size_t end_, std::size_t tiles, std::size_t width, std::size_t few_tiles) : end(end_) {
    const std::size_t bytes = w.block_bytes() * w.blocks(), part = part_bytes(), fit = part / (w.block_bytes() + 1) / width * width;
    few = tiles <= few_tiles && bytes > kFewBytes;
    ask = few || bytes > 2 * part;
    // One tile of rows uses its weights once: then a part is what the kernel takes.
    blocks = few || tiles < 2 || fit < width ? width : ask ? fit : end_ > begin ? end_ - begin : width;
  }
  const std::int8_t* next(const Weight& w, std::size_t first) const {
    return ask && first + blocks < end ? w.data + (first + blocks) * w.block_bytes() : nullptr;
  }
};

// What is to be asked for while a part is multiplied: whole blocks, one, two or four a tile.
struct Asking {
  const std::int8_t* next;
  std::size_t left, a_tile, bytes;

  // Where a tile's begin; null where there is nothing left to ask for.
  const std::int8_t* take() {
    if (left < a_tile) return nullptr;
    const std::int8_t* at = next;
    next += a_tile * bytes;
    left -= a_tile;
    return at;
  }
};

// Rows in tiles of at most kTallest, as even as they go: 8 are 4 + 4, not 6 + 2.
template <VnniKind kind, int C>
void vnni_rows(const Gemm& g, std::size_t first, std::size_t last, std::size_t block, bool far_out, Asking& asking) {
  constexpr std::size_t tallest = kTallest<kind, C>;
  const std::size_t rows = last - first, tiles = (rows + tallest - 1) / tallest;
  for (std::size_t i = 0; i < tiles; ++i) {
    const std::size_t begin = first + rows * i / tiles, end = first + rows * (i + 1) / tiles;
    vnni_kernel<kind, C>(end - begin)({g, begin, block, asking.take(), asking.a_tile, far_out});
  }
}

// 48 rows at a time pass a panel of columns that is in the L1 cache, and go on along the row. A few that
// would be left do not read all weights for themselves: then the parts are even.
constexpr std::size_t kRowsAtOnce = 48, kTooFew = 8;

inline std::size_t rows_at_once(std::size_t rows) {
  const std::size_t left = rows % kRowsAtOnce, parts = (rows + kRowsAtOnce - 1) / kRowsAtOnce;
  return left && left <= kTooFew ? (rows + parts - 1) / parts : kRowsAtOnce;
}

template <VnniKind kind, int C>
void vnni_panels(const Gemm& g) {
  constexpr std::size_t widest = C, tallest = kTallest<kind, C>;
  const std::size_t tiles = (g.rows + tallest - 1) / tallest, at_once = rows_at_once(g.rows), bytes = g.weight.block_bytes();
  const Far far(g.weight, g.block_begin, g.block_end, tiles, widest, 8);
  // Then it has left the cache when it is written again.
  const bool far_out = g.rows * (g.block_end - g.block_begin) * kBlockN * sizeof(float) > part_bytes();
  for (std::size_t first = g.block_begin; first < g.block_end; first += far.blocks) {
    const std::size_t last = first + far.blocks < g.block_end ? first + far.blocks : g.block_end;
    const std::int8_t* next = far.next(g.weight, first);
    const std::size_t left = next ? (g.block_end - last < far.blocks ? g.block_end - last : far.blocks) : 0;
    // Few tiles ask for more than one block each.
    Asking asking{next, left, !far.few || tiles >= widest ? 1 : tiles == 1 ? widest : (widest + 1) / 2, bytes};
    for (std::size_t row = 0; row < g.rows; row += at_once) {
      const std::size_t until = row + at_once < g.rows ? row + at_once : g.rows;
      std::size_t block = first;
      while (block < last) {
        const std::size_t width = block + widest <= last ? widest : block + 2 <= last ? 2 : 1;
        if (width == widest) vnni_rows<kind, C>(g, row, until, block, far_out, asking);
        else if (width == 2) vnni_rows<kind, 2>(g, row, until, block, far_out, asking);
        else vnni_rows<kind, 1>(g, row, until, block, far_out, asking);
        block += width;
      }
    }
  }
}

inline void vnni_gemm(const Gemm& g) {
  if (g.raw) return vnni_panels<VnniKind::kRaw, 4>(g);
  // Ten sums hide the latency of one: what rows do not bring, columns have to.
  if (g.group && (g.rows <= 4 || g.rows == 8)) return vnni_panels<VnniKind::kGroups, 3>(g);
  if (g.group) return vnni_panels<VnniKind::kGroups, 2>(g);
  if (g.rows == 1) {
    for (std::size_t block = g.block_begin; block < g.block_end; ++block) vnni_row({g, 0, block});
    return;
  }
  vnni_panels<VnniKind::kRows, 4>(g);
}

// Twenty-eight independent sums: more than latency times ports.
inline void vnni_peak(std::size_t turns) {
  VnniSums<7, 4> acc;
  acc.clear();
  for (std::size_t i = 0; i < turns; ++i) acc.spin();
  acc.keep();
}

inline std::uint64_t read_bytes(const std::uint8_t* data, std::size_t n) {
  __m512i x[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
  std::size_t i = 0;
  for (; i + 256 <= n; i += 256)
    for (std::size_t j = 0; j < 4; ++j) x[j] = _mm512_xor_si512(x[j], _mm512_loadu_si512(data + i + 64 * j));
  std::uint64_t rest = 0;
  for (; i < n; ++i) rest ^= data[i];
  const __m512i all = _mm512_xor_si512(_mm512_xor_si512(x[0], x[1]), _mm512_xor_si512(x[2], x[3]));
  return rest ^ static_cast<std::uint64_t>(_mm512_reduce_add_epi64(all));
}
