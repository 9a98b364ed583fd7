// The int8 product on 512-bit VNNI. Include it inside an anonymous namespace, after product_tile.h.

OCTAVO_INLINE void dpbusd(__m512i& acc, __m512i a, __m512i b) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
}

using VnniFinish = Finish<Avx512>;

inline __m512i broadcast4(const std::uint8_t* p) {
  std::int32_t four;
  __builtin_memcpy(&four, p, 4);
  return _mm512_set1_epi32(four);
}

// Sums of R rows by C blocks of 16 columns. Every index is a constant for the compiler's front end
// (fold expressions, not loops): only then do all sums stay in registers.
template <int R, int C>
struct VnniSums {
  __m512i v[R * C];

  using Rows = Sequence<R>;
  using Columns = Sequence<C>;

  OCTAVO_INLINE void clear() { clear(Sequence<R * C>{}); }
  // Begins with minus zero points times column sums. Added at the end, as by Finish, it gives the same integer, and
  // is one more operation between the last product and the output.
  OCTAVO_INLINE void start(const RowQuant* q, const std::int32_t* colsum) { start(q, colsum, Rows{}, Columns{}); }

  OCTAVO_INLINE void add(const std::uint8_t* a, std::size_t stride, const std::int8_t* b, std::size_t block, std::size_t steps) {
    for (std::size_t s = 0; s < steps; ++s) step(a + s * 4, stride, b + s * 64, block, Rows{}, Columns{});
  }
  // Beside it asks for the lines of `asks` blocks from `next` on, one of each a step: weights of the next
  // columns, on their way from the L3 cache or memory while these are multiplied.
  OCTAVO_INLINE void add(const std::uint8_t* a, std::size_t stride, const std::int8_t* b, std::size_t block, std::size_t steps,
                         const std::int8_t* next, std::size_t asks) {
    if (!asks) return add(a, stride, b, block, steps);
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
  template <int... r, int... c>
  OCTAVO_INLINE void start(const RowQuant* q, const std::int32_t* colsum, Indices<r...>, Indices<c...> columns) {
    const __m512i sums[C] = {_mm512_load_si512(colsum + c * kBlockN)...};
    (start_row<r>(_mm512_set1_epi32(q[r].pair), sums, columns), ...);
  }
  template <int r, int... c>
  OCTAVO_INLINE void start_row(__m512i pair, const __m512i (&sums)[C], Indices<c...>) {
    ((v[r * C + c] = _mm512_madd_epi16(sums[c], pair)), ...);
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
    __m512i w[C] = {_mm512_load_si512(b + static_cast<std::size_t>(c) * block)...};
    (in_register(w[c]), ...);
    (row<r>(broadcast4(a + static_cast<std::size_t>(r) * stride), w, columns), ...);
  }
  // GCC would load it again for each of three rows, which made these 5 to 20% slower (measured once, while developing).
  static OCTAVO_INLINE void in_register(__m512i& w) { __asm__("" : "+v"(w)); }
  template <int r, int... c>
  OCTAVO_INLINE void row(__m512i x, const __m512i (&w)[C], Indices<c...>) {
    (dpbusd(v[r * C + c], x, w[c]), ...);
  }
};

inline std::size_t steps_of(std::size_t k) { return (k + kBlockK - 1) / kBlockK; }

// Steps between the rows that are asked for (fewer, where there are not so many): all of them at once would
// keep weights waiting.
constexpr std::size_t kStepsARow = 4;

// One scale for each row. `asks_rows`: no cache has the outputs, or the biases of rows. What comes between the
// last product of a tile and the first of the next one is waited for, so it is as short as can be, and a tile
// that asks is another function.
template <int R, int C, bool asks_rows>
void vnni_tile(const VnniTile& t) {
  const Gemm& g = t.g;
  const bool plain = t.plain(C);
  const std::size_t stride = round_up(g.weight.k, kPanelK), block = g.weight.block_bytes();
  const std::uint8_t* a = t.a();
  const std::int8_t *b = t.b(), *next = t.next;
  std::size_t steps = steps_of(g.weight.k);
  // A column's sum is at hand where other tiles have had it; few rows would wait for it.
  constexpr bool starts = R > 4;
  VnniSums<R, C> acc;
  if (starts && plain) acc.start(g.quant + t.row, g.weight.colsum + t.block * kBlockN);
  else acc.clear();
  if constexpr (asks_rows) {
    const std::size_t a_row = steps / R < kStepsARow ? steps / R : kStepsARow;
    for (std::size_t r = 0; r < R; ++r) {
      t.ask_for_row<C>(r);
      acc.add(a, stride, b, block, a_row, next, t.asks);
      a += a_row * kBlockK;
      b += a_row * kBlockK * kBlockN;
      if (t.asks) next += a_row * kBlockK * kBlockN;
    }
    steps -= R * a_row;
  }
  acc.add(a, stride, b, block, steps, next, t.asks);
  if (plain) return VnniStore<R, C, starts>::all(t, acc.v);
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
template <int R, int C, bool asks_rows>
void vnni_group_tile(const VnniTile& t) {
  const Gemm& g = t.g;
  const std::size_t groups = groups_of(g.weight.k, g.group), padded = g.weight.padded_n(), stride = round_up(g.weight.k, kPanelK);
  const std::size_t column = t.block * kBlockN;
  VnniGroups<R, C> total;
  total.clear();
  for (std::size_t i = 0; i < groups; ++i) {
    for (std::size_t r = i; asks_rows && r < R; r += groups) t.ask_for_row<C>(r);
    const std::size_t first = i * kGroup, k = g.weight.k - first < kGroup ? g.weight.k - first : kGroup;
    VnniSums<R, C> acc;
    acc.clear();
    acc.add(t.a() + first, stride, t.b() + first * kBlockN, g.weight.block_bytes(), steps_of(k),
            t.asks ? t.next + first * kBlockN : nullptr, t.asks);
    total.add(acc, g.weight.colsum + i * padded + column, g.quant + t.row * groups + i, groups);
  }
  if (t.plain(C)) return VnniStore<R, C, true>::all(t, total.v);
  __m512 sums[R * C];
  total.store(sums);
  for (std::size_t c = 0; c < C; ++c) finish_rows<Avx512>(g, (t.block + c) * kBlockN, t.row, R, sums + c, C);
}

template <bool adds>
OCTAVO_INLINE void vnni_row_output(const VnniTile& t, __m512i sum) {
  const VnniOutput<adds> to(t);
  to.correct(0, sum);
  to.store(0, sum, _mm512_loadu_ps(t.g.weight.scale + t.block * kBlockN));
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
  if (t.plain(1)) return g.residual ? vnni_row_output<true>(t, total) : vnni_row_output<false>(t, total);
  const __m512i sums[1] = {total};  // of its own: what has an address goes through memory
  finish_rows<Avx512>(g, t.block * kBlockN, t.row, 1, sums, 1);
}

using VnniKernel = void (*)(const VnniTile&);

enum class VnniKind { kRows, kGroups, kRaw };

// Rows of the tallest tile. Sums of groups take twice the registers: 7 by 2 or 4 by 3.
template <VnniKind kind, int C>
constexpr std::size_t kTallest = kind != VnniKind::kGroups ? 6 : C == 3 ? 4 : 7;

template <VnniKind kind, int R, int C, bool asks_rows>
constexpr VnniKernel vnni_kernel() {
  if constexpr (kind == VnniKind::kRows) return vnni_tile<R, C, asks_rows>;
  else if constexpr (kind == VnniKind::kGroups) return vnni_group_tile<R, C, asks_rows>;
  else return vnni_raw_tile<R, C>;
}

// Of 1 to kTallest rows.
template <VnniKind kind, int C, bool asks_rows>
const VnniKernel* vnni_kernels() {
  constexpr int most = static_cast<int>(kTallest<kind, C>);
  static constexpr VnniKernel kernels[] = {
      vnni_kernel<kind, 1, C, asks_rows>(), vnni_kernel<kind, 2, C, asks_rows>(), vnni_kernel<kind, 3, C, asks_rows>(),
      vnni_kernel<kind, 4, C, asks_rows>(), vnni_kernel<kind, most < 5 ? most : 5, C, asks_rows>(),
      vnni_kernel<kind, most < 6 ? most : 6, C, asks_rows>(), vnni_kernel<kind, most, C, asks_rows>()};
  return kernels;
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

  void took(std::size_t asks) {
    next += asks * bytes;
    left -= asks;
  }
};

// Rows in tiles of at most kTallest, as even as they go: 8 are 4 + 4, not 6 + 2. What happens between two tiles
// is waited for: the divisions come before them all.
template <VnniKind kind, int C>
void vnni_rows(const Gemm& g, std::size_t first, std::size_t last, std::size_t block, bool asks_rows, Asking& asking) {
  constexpr std::size_t tallest = kTallest<kind, C>;
  const std::size_t rows = last - first, tiles = (rows + tallest - 1) / tallest;
  const VnniKernel* kernels = asks_rows ? vnni_kernels<kind, C, true>() : vnni_kernels<kind, C, false>();
  const std::size_t few = rows / tiles, larger = rows % tiles;
  for (std::size_t i = 0, row = first; i < tiles; ++i) {
    const std::size_t count = few + (i < larger), asks = asking.left < asking.a_tile ? 0 : asking.a_tile;
    kernels[count - 1]({g, row, block, asking.next, asks});
    asking.took(asks);
    row += count;
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
  // Outputs have left the cache when they are written again; where weights are asked for, biases of rows may have.
  const bool asks_rows = g.rows * (g.block_end - g.block_begin) * kBlockN * sizeof(float) > part_bytes() ||
                         (g.bias_stride && far.ask);
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
        if (width == widest) vnni_rows<kind, C>(g, row, until, block, asks_rows, asking);
        else if (width == 2) vnni_rows<kind, 2>(g, row, until, block, asks_rows, asking);
        else vnni_rows<kind, 1>(g, row, until, block, asks_rows, asking);
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
