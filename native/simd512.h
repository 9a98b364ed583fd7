// Row quantization for instruction sets with 512-bit vectors, whose panels hold plain uint8. Include
// it inside an anonymous namespace, after rows.h.

// 64 integers from 64 floats: saturating packs clamp to 0..255 and interleave lanes, one permutation
// puts them right.
inline __m512i to_bytes(const __m512 x[4], __m512 inverse, __m512i zero) {
  __m512i v[4];
  for (int i = 0; i < 4; ++i)
    v[i] = _mm512_add_epi32(_mm512_cvtps_epi32(_mm512_mul_ps(x[i], inverse)), zero);
  const __m512i packed = _mm512_packus_epi16(_mm512_packs_epi32(v[0], v[1]), _mm512_packs_epi32(v[2], v[3]));
  return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), packed);
}

inline __mmask16 lanes(std::size_t n) { return n >= 16 ? 0xffff : static_cast<__mmask16>((1u << n) - 1u); }

inline std::int32_t sum_bytes(__m512i q) {
  return static_cast<std::int32_t>(_mm512_reduce_add_epi64(_mm512_sad_epu8(q, _mm512_setzero_si512())));
}

// n inputs of one scale; writes whole vectors of 64, zeros behind n.
inline RowQuant quantize_section(const float* x, std::size_t n, const RowRange<Avx512>& r, std::uint8_t* to, bool sums) {
  const std::size_t whole = round_up(n, 64);
  if (!r.finite()) {
    for (std::size_t i = 0; i < whole; i += 64) _mm512_storeu_si512(to + i, _mm512_setzero_si512());
    return {r.scale, 0, 0, 0};
  }
  const __m512 inverse = _mm512_set1_ps(r.inverse);
  const __m512i zero = _mm512_set1_epi32(r.zero_point);
  std::int32_t sum = 0;
  std::size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    const __m512 v[4] = {_mm512_loadu_ps(x + i), _mm512_loadu_ps(x + i + 16), _mm512_loadu_ps(x + i + 32), _mm512_loadu_ps(x + i + 48)};
    const __m512i q = to_bytes(v, inverse, zero);
    _mm512_storeu_si512(to + i, q);
    if (sums) sum += sum_bytes(q);
  }
  if (i < n) {
    __m512 v[4];
    for (std::size_t j = 0; j < 4; ++j) {
      const std::size_t at = i + 16 * j;
      v[j] = _mm512_maskz_loadu_ps(at < n ? lanes(n - at) : 0, x + at);
    }
    const __mmask64 valid = ~static_cast<__mmask64>(0) >> (64 - (n - i));
    const __m512i q = _mm512_maskz_mov_epi8(valid, to_bytes(v, inverse, zero));
    _mm512_storeu_si512(to + i, q);
    if (sums) sum += sum_bytes(q);
  }
  return {r.scale, zero_pair(r.zero_point), sum - static_cast<std::int32_t>(n) * r.zero_point, 0};
}

// Some sections at a time (rows, or groups of them): the ranges of all, then the integers of all, while
// they are in the L1 cache. One by one, each would wait for its own divisions.
inline void quantize_rows(const QuantizeRows& q) {
  constexpr std::size_t kMost = 8, kFloats = 6144;
  const std::size_t groups = groups_of(q.k, q.group), stride = round_up(q.k, kPanelK), sections = q.rows * groups;
  const std::size_t section = q.group ? q.group : q.k;
  std::size_t together = section ? kFloats / section : kMost;
  together = together > kMost ? kMost : together < 1 ? 1 : together;
  RowRange<Avx512> ranges[kMost];
  for (std::size_t begin = 0; begin < sections; begin += together) {
    const std::size_t end = begin + together < sections ? begin + together : sections;
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t first = i % groups * q.group, n = q.k - first < section ? q.k - first : section;
      ranges[i - begin] = RowRange<Avx512>::of(q.x + i / groups * q.stride + first, n);
    }
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t m = i / groups, first = i % groups * q.group, n = q.k - first < section ? q.k - first : section;
      q.quant[i] = quantize_section(q.x + m * q.stride + first, n, ranges[i - begin], q.panel + m * stride + first, q.sums);
    }
  }
}

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
        if (p.sums) sum += sum_bytes(q);
      }
      const std::int32_t z = p.zero_point[m * groups + g];
      p.quant[m * groups + g] = {p.scale[m * groups + g], zero_pair(z), sum - static_cast<std::int32_t>(n) * z, 0};
    }
}
