// Row quantization for instruction sets with 512-bit vectors, whose panels hold plain uint8. Include
// it inside an anonymous namespace, after rows.h.

inline __mmask16 lanes(std::size_t n) { return n >= 16 ? 0xffff : static_cast<__mmask16>((1u << n) - 1u); }

// 64 integers from 64 floats: saturating packs and additions clamp to 0..255 and interleave lanes, one
// permutation puts them right.
inline __m512i to_bytes(const __m512 (&x)[4], __m512 inverse, __m512i zero) {
  __m512i v[4];
  for (int i = 0; i < 4; ++i) v[i] = _mm512_cvtps_epi32(_mm512_mul_ps(x[i], inverse));
  const __m512i low = _mm512_adds_epi16(_mm512_packs_epi32(v[0], v[1]), zero);
  const __m512i high = _mm512_adds_epi16(_mm512_packs_epi32(v[2], v[3]), zero);
  return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), _mm512_packus_epi16(low, high));
}

// Vectors of 16 that are reduced side by side: lane i of the result is of v[i]. Two shuffles and one
// operation a vector, where one alone takes four of each.
template <class Operation>
inline __m512i across(const __m512i (&v)[16], Operation operation) {
  __m512i a[8], b[4], c[2];
  for (int i = 0; i < 8; ++i) a[i] = operation(_mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]), _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
  for (int i = 0; i < 4; ++i) b[i] = operation(_mm512_unpacklo_epi64(a[2 * i], a[2 * i + 1]), _mm512_unpackhi_epi64(a[2 * i], a[2 * i + 1]));
  for (int i = 0; i < 2; ++i)
    c[i] = operation(_mm512_shuffle_i32x4(b[2 * i], b[2 * i + 1], 0x44), _mm512_shuffle_i32x4(b[2 * i], b[2 * i + 1], 0xee));
  return operation(_mm512_shuffle_i32x4(c[0], c[1], 0x88), _mm512_shuffle_i32x4(c[0], c[1], 0xdd));
}

// Up to 16 sections (rows, or groups of them) at a time: the ranges of all, then the integers of all,
// while they are in the L1 cache.
struct Sections {
  static constexpr std::size_t kMost = 16, kFew = 7, kFloats = 6144;  // kFew: up to here one by one is faster

  const QuantizeRows& q;
  const std::size_t groups, stride, section, total;
  std::size_t row = 0, group = 0, count = 0;  // of the next section; how many are taken
  struct One {
    const float* x;
    std::size_t n;
    std::uint8_t* to;
  } taken[kMost];
  alignas(64) float scale[kMost], inverse[kMost];
  alignas(64) std::int32_t zero_point[kMost], sum[kMost];
  std::uint32_t finite = 0;  // a bit for each

  explicit Sections(const QuantizeRows& rows)
      : q(rows), groups(groups_of(q.k, q.group)), stride(round_up(q.k, kPanelK)), section(q.group ? q.group : q.k), total(q.rows * groups) {}

  void quantize() {
    const std::size_t fit = section ? kFloats / section : kMost, most = fit > kMost ? kMost : fit < 1 ? 1 : fit;
    for (std::size_t begin = 0; begin < total; begin += count) {
      take(total - begin < most ? total - begin : most);
      if (count <= kFew) few_ranges();
      else ranges();
      integers();
      for (std::size_t i = 0; i < count; ++i)
        q.quant[begin + i] = finite >> i & 1 ? row_quant(scale[i], zero_point[i], sum[i] - static_cast<std::int32_t>(taken[i].n) * zero_point[i], q.group)
                                             : RowQuant{scale[i], 0, 0, 0};
    }
  }

 private:
  void take(std::size_t most) {
    for (count = 0; count < most; ++count) {
      const std::size_t first = group * q.group;
      taken[count] = {q.x + row * q.stride + first, q.k - first < section ? q.k - first : section, q.panel + row * stride + first};
      if (++group == groups) {
        group = 0;
        ++row;
      }
    }
  }

  void few_ranges() {
    finite = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto r = RowRange<Avx512>::of(taken[i].x, taken[i].n);
      scale[i] = r.scale;
      inverse[i] = r.inverse;
      zero_point[i] = r.zero_point;
      finite |= static_cast<std::uint32_t>(r.finite()) << i;
    }
  }

  // As RowRange::from, a lane each.
  void ranges() {
    __m512i lo[kMost] = {}, hi[kMost] = {};
    for (std::size_t i = 0; i < count; ++i) {
      const auto p = RowRange<Avx512>::partial(taken[i].x, taken[i].n);
      lo[i] = p.lo;
      hi[i] = p.hi;
    }
    const __m512i low_bits = across(lo, [](__m512i a, __m512i b) { return _mm512_max_epu32(a, b); });
    const __m512i high_bits = across(hi, [](__m512i a, __m512i b) { return _mm512_max_epi32(a, b); });
    finite = _mm512_cmplt_epu32_mask(low_bits, _mm512_set1_epi32(static_cast<std::int32_t>(RowRange<Avx512>::kMinusInfinity))) &
             _mm512_cmplt_epi32_mask(high_bits, _mm512_set1_epi32(RowRange<Avx512>::kInfinity));
    const __m512 low = _mm512_castsi512_ps(low_bits), high = _mm512_castsi512_ps(high_bits);
    const __m512 most = _mm512_set1_ps(255.0f), one = _mm512_set1_ps(1.0f);
    const auto valid = static_cast<__mmask16>(finite);
    __m512 s = _mm512_sub_ps(_mm512_div_ps(high, most), _mm512_div_ps(low, most));
    s = _mm512_mask_mov_ps(s, _mm512_cmp_ps_mask(s, _mm512_set1_ps(1e-30f), _CMP_LT_OQ), one);
    const __m512 inv = _mm512_div_ps(one, s);
    const __m512 z = _mm512_roundscale_ps(_mm512_mul_ps(_mm512_sub_ps(_mm512_setzero_ps(), low), inv), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm512_store_ps(scale, _mm512_mask_mov_ps(_mm512_set1_ps(__builtin_nanf("")), valid, s));
    _mm512_store_ps(inverse, _mm512_maskz_mov_ps(valid, inv));
    _mm512_store_si512(zero_point, _mm512_maskz_cvttps_epi32(valid, _mm512_min_ps(z, most)));
  }

  void integers() {
    __m512i sums[kMost] = {};
    for (std::size_t i = 0; i < count; ++i) {
      const One& t = taken[i];
      const __m512 inv = _mm512_set1_ps(inverse[i]);
      const __m512i zero = _mm512_set1_epi16(static_cast<std::int16_t>(zero_point[i]));
      if (!(finite >> i & 1)) __builtin_memset(t.to, 0, round_up(t.n, 64));
      else if (q.sums) sums[i] = integers<true>(t, inv, zero);
      else integers<false>(t, inv, zero);
    }
    if (!q.sums) _mm512_store_si512(sum, _mm512_setzero_si512());
    else if (count > kFew) _mm512_store_si512(sum, across(sums, [](__m512i a, __m512i b) { return _mm512_add_epi32(a, b); }));
    else
      for (std::size_t i = 0; i < count; ++i) sum[i] = _mm512_reduce_add_epi32(sums[i]);
  }
  // Writes whole vectors of 64, zeros behind the last; gives their sums, a lane for four each, if it `adds`.
  template <bool adds>
  static inline __attribute__((always_inline)) __m512i integers(const One& t, __m512 inv, __m512i zero) {
    __m512i all = _mm512_setzero_si512();
    const __m512i ones = _mm512_set1_epi8(1);
    std::size_t i = 0;
    for (; i + 64 <= t.n; i += 64) {
      const __m512 v[4] = {_mm512_loadu_ps(t.x + i), _mm512_loadu_ps(t.x + i + 16), _mm512_loadu_ps(t.x + i + 32), _mm512_loadu_ps(t.x + i + 48)};
      const __m512i bytes = to_bytes(v, inv, zero);
      _mm512_storeu_si512(t.to + i, bytes);
      if (adds) all = _mm512_dpbusd_epi32(all, bytes, ones);
    }
    if (i < t.n) {
      __m512 v[4];
      for (std::size_t j = 0; j < 4; ++j) {
        const std::size_t at = i + 16 * j;
        v[j] = _mm512_maskz_loadu_ps(at < t.n ? lanes(t.n - at) : 0, t.x + at);
      }
      const __mmask64 valid = ~static_cast<__mmask64>(0) >> (64 - (t.n - i));
      const __m512i bytes = _mm512_maskz_mov_epi8(valid, to_bytes(v, inv, zero));
      _mm512_storeu_si512(t.to + i, bytes);
      if (adds) all = _mm512_dpbusd_epi32(all, bytes, ones);
    }
    return all;
  }
};

inline void quantize_rows(const QuantizeRows& q) { Sections(q).quantize(); }

inline void panel_rows(const PanelRows& p) {
  const std::size_t groups = groups_of(p.k, p.group), stride = round_up(p.k, kPanelK);
  for (std::size_t m = 0; m < p.rows; ++m)
    for (std::size_t g = 0; g < groups; ++g) {
      const std::size_t first = g * p.group, n = p.group && p.k - first > p.group ? p.group : p.k - first;
      std::int32_t sum = 0;
      for (std::size_t i = 0; i < round_up(n, 64); i += 64) {
        const __mmask64 valid = n - i >= 64 ? ~static_cast<__mmask64>(0) : ~static_cast<__mmask64>(0) >> (64 - (n - i));
        const __m512i q = _mm512_maskz_loadu_epi8(valid, p.q + m * p.stride + first + i);
        _mm512_storeu_si512(p.panel + m * stride + first + i, q);
        if (p.sums) sum += static_cast<std::int32_t>(_mm512_reduce_add_epi64(_mm512_sad_epu8(q, _mm512_setzero_si512())));
      }
      const std::int32_t z = p.zero_point[m * groups + g];
      p.quant[m * groups + g] = row_quant(p.scale[m * groups + g], z, sum - static_cast<std::int32_t>(n) * z, p.group);
    }
}
