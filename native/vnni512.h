// The int8 product on 512-bit VNNI. Include it inside an anonymous namespace, after simd512.h.

#define OCTAVO_DPBUSD(acc, a, b) __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b))

using VnniFinish = Finish<Avx512>;

inline __m512i broadcast4(const std::uint8_t* p) {
  std::int32_t four;
  __builtin_memcpy(&four, p, 4);
  return _mm512_set1_epi32(four);
}

// R rows by C blocks of 16 columns over `steps` steps of 4 inputs.
template <int R, int C>
inline __attribute__((always_inline)) void vnni_sums(const std::uint8_t* a, std::size_t stride, const std::int8_t* b,
                                                     std::size_t block, std::size_t steps, __m512i (&acc)[R][C]) {
  for (std::size_t s = 0; s < steps; ++s) {
    __m512i w[C];
    for (int c = 0; c < C; ++c) w[c] = _mm512_load_si512(b + static_cast<std::size_t>(c) * block + s * 64);
    for (int r = 0; r < R; ++r) {
      const __m512i x = broadcast4(a + static_cast<std::size_t>(r) * stride + s * 4);
      for (int c = 0; c < C; ++c) OCTAVO_DPBUSD(acc[r][c], x, w[c]);
    }
  }
}

template <int R, int C>
inline void zero_sums(__m512i (&acc)[R][C]) {
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) acc[r][c] = _mm512_setzero_si512();
}

struct VnniTile {
  const Gemm& g;
  std::size_t row, block;  // first of each

  const std::uint8_t* a() const { return g.panel + row * round_up(g.weight.k, kPanelK); }
  const std::int8_t* b() const { return g.weight.data + block * g.weight.block_bytes(); }
};

inline std::size_t steps_of(std::size_t k) { return (k + kBlockK - 1) / kBlockK; }

// One scale for each row.
template <int R, int C>
void vnni_tile(const VnniTile& t) {
  const Gemm& g = t.g;
  __m512i acc[R][C];
  zero_sums(acc);
  vnni_sums<R, C>(t.a(), round_up(g.weight.k, kPanelK), t.b(), g.weight.block_bytes(), steps_of(g.weight.k), acc);
  for (int c = 0; c < C; ++c) {
    const VnniFinish finish(g, (t.block + static_cast<std::size_t>(c)) * kBlockN, 0);
    for (int r = 0; r < R; ++r) {
      const std::size_t row = t.row + static_cast<std::size_t>(r);
      const RowQuant& q = g.quant[row];
      finish.store(finish.scaled(finish.exact(acc[r][c], q), q), row);
    }
  }
}

// Integer sums of one chunk of a long row.
template <int R, int C>
void vnni_raw_tile(const VnniTile& t) {
  const Gemm& g = t.g;
  const std::size_t first = g.chunk * kChunkK, k = g.weight.k - first < kChunkK ? g.weight.k - first : kChunkK;
  __m512i acc[R][C];
  zero_sums(acc);
  vnni_sums<R, C>(t.a() + first, round_up(g.weight.k, kPanelK), t.b() + first * kBlockN, g.weight.block_bytes(), steps_of(k), acc);
  for (int c = 0; c < C; ++c) {
    const VnniFinish finish(g, (t.block + static_cast<std::size_t>(c)) * kBlockN, g.chunk);
    for (int r = 0; r < R; ++r) {
      const std::size_t row = t.row + static_cast<std::size_t>(r);
      _mm512_mask_storeu_epi32(g.raw + row * g.raw_stride + finish.column, Avx512::first(finish.columns),
                               Avx512::correct(acc[r][c], finish.colsum, _mm512_set1_epi32(g.quant[row].pair)));
    }
  }
}

// One scale for each group of 128 inputs: float sums beside the integer ones.
template <int R, int C>
void vnni_group_tile(const VnniTile& t) {
  const Gemm& g = t.g;
  const std::size_t groups = groups_of(g.weight.k, g.group), padded = g.weight.padded_n();
  __m512 sum[R][C];
  for (std::size_t i = 0; i < groups; ++i) {
    const std::size_t first = i * kGroup, k = g.weight.k - first < kGroup ? g.weight.k - first : kGroup;
    __m512i acc[R][C];
    zero_sums(acc);
    vnni_sums<R, C>(t.a() + first, round_up(g.weight.k, kPanelK), t.b() + first * kBlockN, g.weight.block_bytes(), steps_of(k), acc);
    for (int c = 0; c < C; ++c) {
      const std::size_t column = (t.block + static_cast<std::size_t>(c)) * kBlockN;
      const __m512i colsum = Avx512::load_i(g.weight.colsum + i * padded + column);
      for (int r = 0; r < R; ++r) {
        const RowQuant& q = g.quant[(t.row + static_cast<std::size_t>(r)) * groups + i];
        __m512i e = Avx512::correct(acc[r][c], colsum, _mm512_set1_epi32(q.pair));
        if (g.weight.zero) e = _mm512_sub_epi32(e, _mm512_mullo_epi32(Avx512::load_i(g.weight.zero + column), _mm512_set1_epi32(q.sum)));
        const __m512 f = _mm512_cvtepi32_ps(e), scale = _mm512_set1_ps(q.scale);
        sum[r][c] = i == 0 ? _mm512_mul_ps(f, scale) : _mm512_fmadd_ps(f, scale, sum[r][c]);
      }
    }
  }
  for (int c = 0; c < C; ++c) {
    const VnniFinish finish(g, (t.block + static_cast<std::size_t>(c)) * kBlockN, 0);
    for (int r = 0; r < R; ++r) finish.store(sum[r][c], t.row + static_cast<std::size_t>(r));
  }
}

// One row: the weights are read once and the sums are short, so four independent ones along the
// inputs hide the latency that more rows would.
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
  for (; s < steps; ++s) OCTAVO_DPBUSD(acc[0], broadcast4(a + s * 4), _mm512_load_si512(b + s * 64));
  const __m512i total = _mm512_add_epi32(_mm512_add_epi32(acc[0], acc[1]), _mm512_add_epi32(acc[2], acc[3]));
  const VnniFinish finish(g, t.block * kBlockN, 0);
  const RowQuant& q = g.quant[t.row];
  finish.store(finish.scaled(finish.exact(total, q), q), t.row);
}

using VnniKernel = void (*)(const VnniTile&);

enum class VnniKind { kRows, kGroups, kRaw };

template <VnniKind kind, int R, int C>
constexpr VnniKernel vnni_kernel() {
  if constexpr (kind == VnniKind::kRows) return vnni_tile<R, C>;
  else if constexpr (kind == VnniKind::kGroups) return vnni_group_tile<R, C>;
  else return vnni_raw_tile<R, C>;
}

template <VnniKind kind, int C>
VnniKernel vnni_kernel(std::size_t rows) {
  static constexpr VnniKernel kernels[] = {vnni_kernel<kind, 1, C>(), vnni_kernel<kind, 2, C>(), vnni_kernel<kind, 3, C>(),
                                           vnni_kernel<kind, 4, C>(), vnni_kernel<kind, 5, C>(), vnni_kernel<kind, 6, C>()};
  return kernels[rows - 1];
}

// Rows in tiles of at most `tallest`, as even as they go: 8 are 4 + 4, not 6 + 2.
template <VnniKind kind, int C>
void vnni_columns(const Gemm& g, std::size_t block, std::size_t tallest) {
  const std::size_t tiles = (g.rows + tallest - 1) / tallest;
  for (std::size_t i = 0; i < tiles; ++i) {
    const std::size_t first = g.rows * i / tiles, last = g.rows * (i + 1) / tiles;
    vnni_kernel<kind, C>(last - first)({g, first, block});
  }
}

template <VnniKind kind>
void vnni_panels(const Gemm& g, std::size_t widest) {
  std::size_t block = g.block_begin;
  for (; widest >= 4 && block + 4 <= g.block_end; block += 4) vnni_columns<kind, 4>(g, block, 6);
  for (; block + 2 <= g.block_end; block += 2) vnni_columns<kind, 2>(g, block, 6);
  for (; block < g.block_end; ++block) vnni_columns<kind, 1>(g, block, 6);
}

inline void vnni_gemm(const Gemm& g) {
  if (g.raw) return vnni_panels<VnniKind::kRaw>(g, 4);
  if (g.group) return vnni_panels<VnniKind::kGroups>(g, 2);
  if (g.rows == 1) {
    for (std::size_t block = g.block_begin; block < g.block_end; ++block) vnni_row({g, 0, block});
    return;
  }
  vnni_panels<VnniKind::kRows>(g, 4);
}

inline void vnni_peak(std::size_t turns) {
  __m512i acc[28];
  const __m512i a = _mm512_set1_epi32(0x01010101), b = a;
  for (auto& x : acc) x = _mm512_setzero_si512();
  for (std::size_t i = 0; i < turns; ++i)
    for (auto& x : acc) OCTAVO_DPBUSD(x, a, b);
  for (auto& x : acc) __asm__ volatile("" : : "v"(x));
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
