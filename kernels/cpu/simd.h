// Vectors of 16 floats, bf16 and exp. Included once per instruction-set namespace (see compute.cpp), so no guard.
// GCC's vector extension is lowered to whatever the namespace's target offers: one zmm, two ymm or four xmm.

typedef float vf __attribute__((vector_size(64)));
typedef int32_t vi __attribute__((vector_size(64)));
typedef uint32_t vu __attribute__((vector_size(64)));
typedef uint16_t vh __attribute__((vector_size(32)));
constexpr int64_t W = 16;

#if HAS_BF16_PRODUCTS
using operand = bf16;  // what a product takes beside its bf16 weights
#else
using operand = float;
#endif

#define INLINE static inline __attribute__((always_inline))

INLINE vf splat(float x) { return vf{} + x; }

INLINE float to_float(bf16 x) { return __builtin_bit_cast(float, uint32_t(x.bits) << 16); }
INLINE float to_float(float x) { return x; }

INLINE void store(bf16* p, float x) {  // round to nearest even; a NaN stays a NaN
  uint32_t u = __builtin_bit_cast(uint32_t, x);
  p->bits = (u & 0x7fffffffu) > 0x7f800000u ? uint16_t((u >> 16) | 0x40u) : uint16_t((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
INLINE void store(float* p, float x) { *p = x; }

INLINE vf load16(const float* p) {
  vf v;
  std::memcpy(&v, p, 64);
  return v;
}
INLINE vf load16(const bf16* p) {
#if HAS_BF16_PRODUCTS  // GCC 12 would widen in two halves
  return (vf)((vu)_mm512_maskz_cvtepu16_epi32(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))) << 16);
#else
  vh h;
  std::memcpy(&h, p, 32);
  return (vf)(__builtin_convertvector(h, vu) << 16);
#endif
}
INLINE void store16(float* p, vf v) { std::memcpy(p, &v, 64); }
INLINE void store16(bf16* p, vf v) {
  vu u = (vu)v;
  vu rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  vu quiet = (u >> 16) | 0x40u;
  vh h = __builtin_convertvector((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded, vh);
  std::memcpy(p, &h, 32);
}

INLINE float sum16(vf v) {
  float s[16];
  std::memcpy(s, &v, 64);
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) s[i] += s[i + width];
  return s[0];
}
INLINE float max16(vf v) {
  float s[16];
  std::memcpy(s, &v, 64);
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) s[i] = s[i] > s[i + width] ? s[i] : s[i + width];
  return s[0];
}
INLINE vf max(vf a, vf b) { return a > b ? a : b; }

INLINE vf exp_part(vf r) {  // e^r for |r| <= ln 2 / 2
  vf p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return p * r * r + r + 1.0f;
}

// e^x for x <= 88, relative error below 2e-7; exactly 0 below -87, so no result is subnormal. NaN gives NaN.
INLINE vf exp16(vf x) {
#if HAS_BF16_PRODUCTS
  const vf n = (vf)_mm512_roundscale_ps((__m512)(x * 1.44269504f), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const vf r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  return (vf)_mm512_maskz_scalef_ps(_mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-87.0f), _CMP_NLT_UQ), (__m512)exp_part(r), (__m512)n);
#else
  vf c = x < -87.0f ? splat(-87.0f) : x;
  const float round = 12582912.0f;  // 1.5 * 2^23: adding and subtracting it rounds to an integer
  vf n = (c * 1.44269504f + round) - round;
  vf r = (c - n * 0.693359375f) - n * -2.12194440e-4f;
  vi scale = (__builtin_convertvector(n, vi) + 127) << 23;
  vf result = exp_part(r) * (vf)scale;
  return x < -87.0f ? vf{} : result;
#endif
}

// 1 / x for x in [1, 1e30], relative error below 2e-7.
INLINE vf reciprocal16(vf x) {
#if HAS_BF16_PRODUCTS
  const vf r = (vf)_mm512_rcp14_ps((__m512)x);
  return r * (2.0f - x * r);
#else
  return 1.0f / x;
#endif
}

// Vectors as wide as the registers: what loops use that must keep many sums in registers.
#if HAS_BF16_PRODUCTS
typedef vf vn;
constexpr int64_t N = 16;
#else
typedef float vn __attribute__((vector_size(32)));
constexpr int64_t N = 8;
#endif

INLINE vn load_n(const float* p) {
  vn v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
INLINE vn load_n(const bf16* p) {
#if HAS_BF16_PRODUCTS
  return load16(p);
#else
  typedef uint16_t half __attribute__((vector_size(16)));
  typedef uint32_t word __attribute__((vector_size(32)));
  half h;
  std::memcpy(&h, p, sizeof h);
  return (vn)(__builtin_convertvector(h, word) << 16);
#endif
}
INLINE void store_n(float* p, vn v) { std::memcpy(p, &v, sizeof v); }

// Sums of N vectors: lane t of the result is the sum of v[t]'s lanes.
INLINE vn pairs(vn a, vn b) {
#if HAS_BF16_PRODUCTS
  return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30) +
         __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
#else
  return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14) + __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
#endif
}
INLINE vn sums_n(const vn* v) {
  vn level[N / 2];
  for (int64_t i = 0; i < N / 2; ++i) level[i] = pairs(v[2 * i], v[2 * i + 1]);
  for (int64_t count = N / 4; count > 0; count /= 2)
    for (int64_t i = 0; i < count; ++i) level[i] = pairs(level[2 * i], level[2 * i + 1]);
  return level[0];
}

#if HAS_BF16_PRODUCTS
INLINE __m512bh load_pairs(const bf16* p) { return (__m512bh)_mm512_loadu_si512(p); }
#endif
