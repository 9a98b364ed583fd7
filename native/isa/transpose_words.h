// 16 rows of 16 words of four bytes, turned, and lines written past the caches, with the widest vectors
// that the file including it is built for. Include it inside an anonymous namespace.

// Four words of four rows; strides are in bytes. GCC's vectors exist on every processor.
inline void turn_four_rows(const void* from, std::size_t stride, void* to, std::size_t to_stride) {
  typedef std::int32_t Words __attribute__((vector_size(16)));
  Words v[4];
  for (std::size_t i = 0; i < 4; ++i) __builtin_memcpy(&v[i], static_cast<const char*>(from) + i * stride, 16);
  const Words low = {0, 4, 1, 5}, high = {2, 6, 3, 7}, first = {0, 1, 4, 5}, last = {2, 3, 6, 7};
  const Words low01 = __builtin_shuffle(v[0], v[1], low), high01 = __builtin_shuffle(v[0], v[1], high);
  const Words low23 = __builtin_shuffle(v[2], v[3], low), high23 = __builtin_shuffle(v[2], v[3], high);
  const Words turned[4] = {__builtin_shuffle(low01, low23, first), __builtin_shuffle(low01, low23, last),
                           __builtin_shuffle(high01, high23, first), __builtin_shuffle(high01, high23, last)};
  for (std::size_t i = 0; i < 4; ++i) __builtin_memcpy(static_cast<char*>(to) + i * to_stride, &turned[i], 16);
}

#if defined(__AVX512F__)

// Four words of 16 rows that lie `stride` bytes apart: word j of all rows becomes out[j]. The rows come as
// lanes i, i + 4, i + 8, i + 12 of vector i, so that turning 4 x 4 within lanes is all there is to do.
inline __attribute__((always_inline)) void turn_four(const void* from, std::size_t stride, __m512i (&out)[4]) {
  // Every fourth row, and the others by the stride: GCC would keep the distances of all 16, in vectors.
  const char *a = static_cast<const char*>(from), *b = a + 4 * stride, *c = b + 4 * stride, *d = c + 4 * stride;
  __asm__("" : "+r"(b), "+r"(c), "+r"(d));
  const auto four = [](const char* row) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(row)); };
  __m512i v[4];
  for (std::size_t i = 0, at = 0; i < 4; ++i, at += stride) {
    v[i] = _mm512_inserti32x4(_mm512_castsi128_si512(four(a + at)), four(b + at), 1);
    v[i] = _mm512_inserti32x4(_mm512_inserti32x4(v[i], four(c + at), 2), four(d + at), 3);
  }
  const __m512i low01 = _mm512_unpacklo_epi32(v[0], v[1]), high01 = _mm512_unpackhi_epi32(v[0], v[1]);
  const __m512i low23 = _mm512_unpacklo_epi32(v[2], v[3]), high23 = _mm512_unpackhi_epi32(v[2], v[3]);
  out[0] = _mm512_unpacklo_epi64(low01, low23);
  out[1] = _mm512_unpackhi_epi64(low01, low23);
  out[2] = _mm512_unpacklo_epi64(high01, high23);
  out[3] = _mm512_unpackhi_epi64(high01, high23);
}

template <bool streamed>
inline void turn_tile(const std::int8_t* from, std::size_t stride, std::int8_t* to, std::size_t to_stride, std::size_t step) {
  // The next tile, of rows that lie apart, where results stay in the caches (measured once, while developing:
  // 8% of packing 384 x 1536). Of rows side by side, or beside streams, processors read ahead well enough.
  if (!streamed && step < stride)
    for (std::size_t r = 0; r < 16; ++r) __builtin_prefetch(from + r * stride + step);
  for (std::size_t j = 0; j < 4; ++j) {
    __m512i v[4];
    turn_four(from + 16 * j, stride, v);
    for (std::size_t i = 0; i < 4; ++i, to += to_stride) {
      if (streamed) _mm512_stream_si512(reinterpret_cast<__m512i*>(to), v[i]);
      else _mm512_storeu_si512(to, v[i]);
    }
  }
}

inline void stream_line(std::int8_t* to, const std::int8_t* from) {
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
}

#elif defined(__AVX2__)

// Four words of 8 rows, as those of 16 with wider vectors.
inline void turn_four(const std::int8_t* from, std::size_t stride, __m256i (&out)[4]) {
  __m256i v[4];
  for (std::size_t i = 0; i < 4; ++i)
    v[i] = _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(from + (i + 4) * stride),
                               reinterpret_cast<const __m128i*>(from + i * stride));
  const __m256i low01 = _mm256_unpacklo_epi32(v[0], v[1]), high01 = _mm256_unpackhi_epi32(v[0], v[1]);
  const __m256i low23 = _mm256_unpacklo_epi32(v[2], v[3]), high23 = _mm256_unpackhi_epi32(v[2], v[3]);
  out[0] = _mm256_unpacklo_epi64(low01, low23);
  out[1] = _mm256_unpackhi_epi64(low01, low23);
  out[2] = _mm256_unpacklo_epi64(high01, high23);
  out[3] = _mm256_unpackhi_epi64(high01, high23);
}

template <bool streamed>
inline void turn_tile(const std::int8_t* from, std::size_t stride, std::int8_t* to, std::size_t to_stride, std::size_t) {
  for (std::size_t j = 0; j < 4; ++j) {
    __m256i low[4], high[4];
    turn_four(from + 16 * j, stride, low);
    turn_four(from + 16 * j + 8 * stride, stride, high);
    for (std::size_t i = 0; i < 4; ++i, to += to_stride) {
      auto* at = reinterpret_cast<__m256i*>(to);
      if (streamed) {
        _mm256_stream_si256(at, low[i]);
        _mm256_stream_si256(at + 1, high[i]);
      } else {
        _mm256_storeu_si256(at, low[i]);
        _mm256_storeu_si256(at + 1, high[i]);
      }
    }
  }
}

inline void stream_line(std::int8_t* to, const std::int8_t* from) {
  for (std::size_t i = 0; i < kAlign; i += 32)
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i)));
}

#else

template <bool streamed>
inline void turn_tile(const std::int8_t* from, std::size_t stride, std::int8_t* to, std::size_t to_stride, std::size_t) {
  for (std::size_t j = 0; j < 16; j += 4)
    for (std::size_t i = 0; i < 16; i += 4)
      turn_four_rows(from + i * stride + 4 * j, stride, to + j * to_stride + 4 * i, to_stride);
}

inline void stream_line(std::int8_t* to, const std::int8_t* from) { __builtin_memcpy(to, from, kAlign); }

#endif

template <bool streamed>
inline void turn_tiles(TurnWords t) {  // a copy: else what is stored might be taken for a part of it
  for (std::size_t i = 0; i < t.tiles; ++i) turn_tile<streamed>(t.from + i * t.step, t.stride, t.to + i * t.to_step, t.to_stride, t.step);
}

inline void turn_words(const TurnWords& t) { t.streamed ? turn_tiles<true>(t) : turn_tiles<false>(t); }

inline void stream_lines(std::int8_t* to, const std::int8_t* from, std::size_t lines) {
  for (std::size_t i = 0; i < lines; ++i) stream_line(to + i * kAlign, from + i * kAlign);
}

inline void end_of_streams() {
#if defined(__AVX2__)
  _mm_sfence();
#endif
}
