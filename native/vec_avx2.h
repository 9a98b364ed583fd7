// Eight elements at a time. Include it inside an anonymous namespace of a file built for AVX2 and FMA.

struct Avx2 {
  using F = __m256;
  using I = __m256i;
  using Mask = __m256;
  static constexpr int kWidth = 8;

  static I first(int n) {  // all ones in the first n lanes
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static F load_n(const float* p, int n) { return _mm256_maskload_ps(p, first(n)); }
  static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static void store_n(float* p, F x, int n) { _mm256_maskstore_ps(p, first(n), x); }
  static I load_i(const std::int32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static F set(float x) { return _mm256_set1_ps(x); }
  static I set_i(std::int32_t x) { return _mm256_set1_epi32(x); }

  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F min(F a, F b) { return _mm256_min_ps(a, b); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static F sign_bit() { return _mm256_castsi256_ps(_mm256_set1_epi32(INT32_MIN)); }
  static F abs(F a) { return _mm256_andnot_ps(sign_bit(), a); }
  static F copysign(F size, F sign) {
    return _mm256_or_ps(_mm256_andnot_ps(sign_bit(), size), _mm256_and_ps(sign_bit(), sign));
  }
  static Mask less(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
  static F select(Mask m, F yes, F no) { return _mm256_blendv_ps(no, yes, m); }

  static I add_i(I a, I b) { return _mm256_add_epi32(a, b); }
  static I sub_i(I a, I b) { return _mm256_sub_epi32(a, b); }
  static I mul_i(I a, I b) { return _mm256_mullo_epi32(a, b); }
  static I round(F x) { return _mm256_cvtps_epi32(x); }
  static F to_float(I x) { return _mm256_cvtepi32_ps(x); }
  static F pow2(I n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  }
  static I correct(I acc, I colsum, I pair) {
    return _mm256_add_epi32(acc, _mm256_madd_epi16(colsum, pair));
  }
  static float lowest(F x) {
    float lanes[8], least;
    store(lanes, x);
    least = lanes[0];
    for (int i = 1; i < 8; ++i) least = lanes[i] < least ? lanes[i] : least;
    return least;
  }
  static float highest(F x) {
    float lanes[8], most;
    store(lanes, x);
    most = lanes[0];
    for (int i = 1; i < 8; ++i) most = lanes[i] > most ? lanes[i] : most;
    return most;
  }
  static bool any_nan(F x) { return _mm256_movemask_ps(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)) != 0; }
};
