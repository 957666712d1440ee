// What attention does with one block of keys and values: scores, and sums of values by weight. Included per instruction-set
// namespace. A group's queries share every key and value read.

template <class T>
INLINE void prefetch_rows(const T* p, int64_t stride, int64_t count, int64_t d) {
  for (int64_t t = 0; t < count; ++t)
    for (int64_t byte = 0; byte < d * int64_t(sizeof(T)); byte += 64)
      __builtin_prefetch(reinterpret_cast<const char*>(p + t * stride) + byte);
}

// scores[g][t] for `count` tokens of one block and G queries at once: each key is read and widened once. D: the head size
// when known at compile time, else 0. TOKENS keys at a time share the loads of the queries.
template <int D, int G, class T>
INLINE void score_some(const float* q, int64_t head_size, const T* keys, int64_t stride, int64_t count, float* scores,
                       int64_t score_stride) {
  constexpr int TOKENS = HAS_BF16_PRODUCTS ? 1 : 2;  // 32 registers hold the queries anyway
  const int64_t d = D ? D : head_size;
  for (int64_t t0 = 0; t0 < count; t0 += N) {
    const int64_t n = count - t0 < N ? count - t0 : N;
    vn partial[G][N];
    for (int64_t t = 0; t < N; t += TOKENS) {
      const T* key[TOKENS];
      for (int i = 0; i < TOKENS; ++i) key[i] = keys + (t0 + (t + i < n ? t + i : n - 1)) * stride;
      vn sum[TOKENS][G] = {};
#pragma GCC unroll 8
      for (int64_t j = 0; j < d; j += N) {
        vn k[TOKENS];
#pragma GCC unroll 2
        for (int i = 0; i < TOKENS; ++i) k[i] = load_n(key[i] + j);
#pragma GCC unroll 4
        for (int g = 0; g < G; ++g) {
          const vn query = load_n(q + g * d + j);
#pragma GCC unroll 2
          for (int i = 0; i < TOKENS; ++i) sum[i][g] += query * k[i];
        }
      }
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g)
#pragma GCC unroll 2
        for (int i = 0; i < TOKENS; ++i) partial[g][t + i] = sum[i][g];
    }
    for (int g = 0; g < G; ++g) {
      const vn s = sums_n(partial[g]);
      float* out = scores + g * score_stride + t0;
      if (n == N)
        store_n(out, s);
      else
        for (int64_t t = 0; t < n; ++t) out[t] = s[t];
    }
  }
}

#if HAS_BF16_PRODUCTS
// The same from queries in bf16, two elements of the head a lane.
template <int D, int G>
INLINE void score_pairs(const bf16* q, float scale, const bf16* keys, int64_t stride, int64_t count, float* scores,
                        int64_t score_stride) {
  for (int64_t t0 = 0; t0 < count; t0 += N) {
    const int64_t n = count - t0 < N ? count - t0 : N;
    vn partial[G][N];
    for (int64_t t = 0; t < N; ++t) {
      const bf16* key = keys + (t0 + (t < n ? t : n - 1)) * stride;
      vn sum[G] = {};
#pragma GCC unroll 8
      for (int64_t j = 0; j < D; j += 2 * N) {
        const __m512bh k = load_pairs(key + j);
#pragma GCC unroll 4
        for (int g = 0; g < G; ++g) sum[g] = (vn)_mm512_dpbf16_ps((__m512)sum[g], load_pairs(q + g * D + j), k);
      }
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g) partial[g][t] = sum[g];
    }
    for (int g = 0; g < G; ++g) {
      const vn s = sums_n(partial[g]) * scale;
      float* out = scores + g * score_stride + t0;
      if (n == N)
        store_n(out, s);
      else
        for (int64_t t = 0; t < n; ++t) out[t] = s[t];
    }
  }
}
#endif

// `Q`: bf16 where the machine multiplies bf16, the keys are bf16 and the head size is known; else float32, already scaled.
template <int D, class Q, class T>
INLINE void score_block(const Q* q, [[maybe_unused]] float scale, int64_t group, int64_t d, const T* keys, int64_t stride,
                        int64_t count, float* scores, int64_t score_stride) {
  int64_t g = 0;
  const auto some = [&]<int G>() {
    for (; g + G <= group; g += G) {
#if HAS_BF16_PRODUCTS
      if constexpr (std::is_same_v<Q, bf16>)
        score_pairs<D, G>(q + g * D, scale, keys, stride, count, scores + g * score_stride, score_stride);
      else
#endif
        score_some<D, G>(q + g * d, d, keys, stride, count, scores + g * score_stride, score_stride);
    }
  };
  if constexpr (D == 64) some.template operator()<4>();
  if constexpr (D == 64) some.template operator()<3>();
  if constexpr (D != 0) some.template operator()<2>();
  some.template operator()<1>();
}

// out[g][:] += sum over tokens of p[g][t] * value[t][:], for G queries and WIDE vectors of the head at once.
template <int G, int WIDE, class T>
INLINE void mix_some(const float* p, int64_t p_stride, int64_t d, const T* values, int64_t stride, int64_t count, float* out) {
  for (int64_t first = 0; first < d; first += WIDE * N) {
    vn acc[G][WIDE];
    for (int g = 0; g < G; ++g)
      for (int j = 0; j < WIDE; ++j) acc[g][j] = load_n(out + g * d + first + j * N);
    for (int64_t t = 0; t < count; ++t) {
      vn v[WIDE];
#pragma GCC unroll 4
      for (int j = 0; j < WIDE; ++j) v[j] = load_n(values + t * stride + first + j * N);
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g)
#pragma GCC unroll 4
        for (int j = 0; j < WIDE; ++j) acc[g][j] += p[g * p_stride + t] * v[j];
    }
    for (int g = 0; g < G; ++g)
      for (int j = 0; j < WIDE; ++j) store_n(out + g * d + first + j * N, acc[g][j]);
  }
}

#if HAS_BF16_PRODUCTS
// The same from probabilities rounded to bf16: two tokens a lane.
template <int D, int G>
INLINE void mix_pairs(const bf16* p, int64_t p_stride, const bf16* values, int64_t stride, int64_t count, float* out) {
  alignas(64) static constexpr uint16_t FIRST_HALF[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                          8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i low = _mm512_load_si512(FIRST_HALF), high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  for (int64_t first = 0; first < D; first += 64) {
    vn acc[G][4];
    for (int g = 0; g < G; ++g)
      for (int j = 0; j < 4; ++j) acc[g][j] = load_n(out + g * D + first + j * N);
    for (int64_t t = 0; t < count; t += 2) {
      const bf16 *one = values + t * stride + first, *two = t + 1 < count ? one + stride : one;
      __m512bh v[4];
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) {
        const __m512i a = (__m512i)load_pairs(one + j * 32), b = (__m512i)load_pairs(two + j * 32);
        v[2 * j] = (__m512bh)_mm512_permutex2var_epi16(a, low, b);
        v[2 * j + 1] = (__m512bh)_mm512_permutex2var_epi16(a, high, b);
      }
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g) {
        uint32_t pair;
        std::memcpy(&pair, p + g * p_stride + t, 4);
        if (t + 1 == count) pair &= 0xffffu;
        const __m512bh weights = (__m512bh)_mm512_set1_epi32(int(pair));
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) acc[g][j] = (vn)_mm512_dpbf16_ps((__m512)acc[g][j], weights, v[j]);
      }
    }
    for (int g = 0; g < G; ++g)
      for (int j = 0; j < 4; ++j) store_n(out + g * D + first + j * N, acc[g][j]);
  }
}
#endif

template <int D, class Q, class T>
INLINE void mix_block(const Q* p, int64_t p_stride, int64_t group, int64_t head_size, const T* values, int64_t stride,
                      int64_t count, float* out) {
  const int64_t d = D ? D : head_size;
  int64_t g = 0;
  const auto some = [&]<int G>() {
    for (; g + G <= group; g += G) {
#if HAS_BF16_PRODUCTS
      if constexpr (std::is_same_v<Q, bf16>)
        mix_pairs<D, G>(p + g * p_stride, p_stride, values, stride, count, out + g * D);
      else
#endif
        mix_some<G, D ? 4 : 1>(p + g * p_stride, p_stride, d, values, stride, count, out + g * d);
    }
  };
  if constexpr (D != 0 && HAS_BF16_PRODUCTS) some.template operator()<4>();
  if constexpr (D != 0) some.template operator()<3>();
  if constexpr (D != 0) some.template operator()<2>();
  some.template operator()<1>();
}
