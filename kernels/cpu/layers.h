// RMS norm, rotary embedding with KV write, SiLU-multiply: one row each. Included per instruction-set namespace.

// y = weight * s / sqrt(mean(s^2) + eps); sums in float32.
template <class In, class Out>
INLINE void rms_norm_row(const In* s, const bf16* weight16, const float* weight32, float eps, int64_t d, Out* y) {
  vf squares{};
  float tail = 0.0f;
  int64_t i = 0;
  for (; i + W <= d; i += W) {
    vf v = load16(s + i);
    squares += v * v;
  }
  for (; i < d; ++i) tail += to_float(s[i]) * to_float(s[i]);
  float factor = 1.0f / std::sqrt((sum16(squares) + tail) / float(d) + eps);
  for (i = 0; i + W <= d; i += W)
    store16(y + i, load16(s + i) * factor * (weight16 ? load16(weight16 + i) : load16(weight32 + i)));
  for (; i < d; ++i) store(y + i, to_float(s[i]) * factor * (weight16 ? to_float(weight16[i]) : weight32[i]));
}

// Half-split rotary: (a cos - b sin, b cos + a sin) for halves a, b of one head of size d.
template <class In, class Out>
INLINE void rotary_head(const In* x, const float* cos, const float* sin, int64_t d, Out* y) {
  int64_t half = d / 2, i = 0;
  for (; i + W <= half; i += W) {
    vf a = load16(x + i), b = load16(x + half + i), c = load16(cos + i), s = load16(sin + i);
    store16(y + i, a * c - b * s);
    store16(y + half + i, b * c + a * s);
  }
  for (; i < half; ++i) {
    float a = to_float(x[i]), b = to_float(x[half + i]);
    store(y + i, a * cos[i] - b * sin[i]);
    store(y + half + i, b * cos[i] + a * sin[i]);
  }
}

// silu(gate) * up, count values; y overlaps neither. A tail is done by a last vector that repeats some values.
template <class In, class Out>
INLINE void swiglu_row(const In* gate, const In* up, int64_t count, Out* y) {
  int64_t i = 0;
  // Below -60 the sigmoid is taken as e^-60, which is nothing beside any activation.
  auto silu = [](vf g) { return g * reciprocal16(1.0f + exp16(-g < 60.0f ? -g : splat(60.0f))); };
  for (; i + W <= count; i += W) store16(y + i, silu(load16(gate + i)) * load16(up + i));
  if (i < count && count > W) {
    i = count - W;
    store16(y + i, silu(load16(gate + i)) * load16(up + i));
    return;
  }
  for (; i < count; ++i) {
    vf g = splat(to_float(gate[i]));
    store(y + i, silu(g)[0] * to_float(up[i]));
  }
}

template <class T>
void rms_norm_rows(const T* x, const T* residual, const T* weight, float eps, int64_t rows, int64_t d, T* y, T* total,
                   int threads) {
#pragma omp parallel for num_threads(threads) schedule(static) if (rows * d > 8192)
  for (int64_t r = 0; r < rows; ++r) {
    const T* s = x + r * d;
    if (residual) {  // the sum is rounded to T first, so that the next layer sees what was normed
      T* t = total + r * d;
      int64_t i = 0;
      for (; i + W <= d; i += W) store16(t + i, load16(s + i) + load16(residual + r * d + i));
      for (; i < d; ++i) store(t + i, to_float(s[i]) + to_float(residual[r * d + i]));
      s = t;
    }
    if constexpr (std::is_same_v<T, bf16>)
      rms_norm_row(s, weight, (const float*)nullptr, eps, d, y + r * d);
    else
      rms_norm_row(s, (const bf16*)nullptr, weight, eps, d, y + r * d);
  }
}

template <class T>
void rotary_rows(const T* q, int64_t q_stride, const T* k, int64_t k_stride, const float* cos, const float* sin,
                 int64_t tokens, int64_t heads, int64_t kv_heads, int64_t d, T* q_out, T* k_out, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static) if (tokens > 8)
  for (int64_t t = 0; t < tokens; ++t) {
    const float *c = cos + t * d / 2, *s = sin + t * d / 2;
    for (int64_t h = 0; h < heads; ++h) rotary_head(q + t * q_stride + h * d, c, s, d, q_out + (t * heads + h) * d);
    for (int64_t h = 0; h < kv_heads; ++h) rotary_head(k + t * k_stride + h * d, c, s, d, k_out + (t * kv_heads + h) * d);
  }
}

template <class T>
void swiglu_rows(const T* gate_up, int64_t rows, int64_t size, T* y, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static) if (rows * size > 8192)
  for (int64_t r = 0; r < rows; ++r) swiglu_row(gate_up + r * 2 * size, gate_up + r * 2 * size + size, size, y + r * size);
}
