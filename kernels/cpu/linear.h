// Product with a packed bf16 weight. Included per instruction-set namespace; see PackedWeight in compute.h.
//
// The weight W [n, k] is stored in panels of 48 columns, each panel as [k/32][3][16 pairs of k][16 columns][2]: read once,
// front to back. 16 pairs x 16 columns x 2 is one AMX tile and also 16 registers of `dpbf16`. Sums are float32.

// One panel times up to 32 rows of x (row stride k_padded); tile: [rows][48] float32 result.
#if HAS_BF16_PRODUCTS

INLINE void set_tiles(int64_t rows) {
  struct alignas(64) {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {};
    uint8_t rows[16] = {};
  } config;
  for (int t = 0; t < 8; ++t) {
    config.bytes[t] = 64;
    config.rows[t] = uint8_t(t == 7 || rows > 16 ? 16 : rows);  // tile 7 holds weights, 6 holds x, 0 to 5 the sums
  }
  _tile_loadconfig(&config);
}

template <bool TWO>  // TWO: 32 rows of x, else up to 16
INLINE void panel_amx(const bf16* x, int64_t k_padded, const bf16* panel, float* tile) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  if (TWO) {
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
  }
  const int64_t stride = k_padded * 2;
  for (int64_t k = 0; k < k_padded; k += 32, panel += 1536) {
    for (int line = 0; line < 48; ++line) __builtin_prefetch(reinterpret_cast<const char*>(panel + 1536) + line * 64);
    _tile_loadd(6, x + k, stride);
    _tile_loadd(7, panel, 64);
    _tile_dpbf16ps(0, 6, 7);
    _tile_loadd(7, panel + 512, 64);
    _tile_dpbf16ps(1, 6, 7);
    _tile_loadd(7, panel + 1024, 64);
    _tile_dpbf16ps(2, 6, 7);
    if (TWO) {
      _tile_loadd(6, x + 16 * k_padded + k, stride);
      _tile_dpbf16ps(5, 6, 7);
      _tile_loadd(7, panel, 64);
      _tile_dpbf16ps(3, 6, 7);
      _tile_loadd(7, panel + 512, 64);
      _tile_dpbf16ps(4, 6, 7);
    }
  }
  _tile_stored(0, tile, 192);
  _tile_stored(1, tile + 16, 192);
  _tile_stored(2, tile + 32, 192);
  if (TWO) {
    tile += 16 * 48;
    _tile_stored(3, tile, 192);
    _tile_stored(4, tile + 16, 192);
    _tile_stored(5, tile + 32, 192);
  }
}
#endif

INLINE Range panel_of(const PackedWeight& w, int64_t panel) {
  const char* first = reinterpret_cast<const char*>(w.data + panel * w.k_padded * 48);
  return {first, first + w.k_padded * 96};
}

#if HAS_BF16_PRODUCTS

INLINE vf add_products(vf sum, uint32_t pair, const bf16* w) {
  __m512i words;
  std::memcpy(&words, w, 64);
  return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32(int(pair)), (__m512bh)words);
}

template <int ROWS, int LINES>  // rows of x at once; ROWS x 3 sums stay in registers
__attribute__((noinline)) void panel_rows(const bf16* x, int64_t k_padded, const bf16* panel, float* tile, Ahead& ahead) {
  vf sum[ROWS][3] = {};
  Range now = ahead.now;
  for (int64_t k = 0; k < k_padded; k += 32, panel += 1536) {
    for (int64_t pair = 0; pair < 16; ++pair) {
      if (LINES > 0 && now.next < now.end) {
#pragma GCC unroll 4
        for (int line = 0; line < LINES; ++line) __builtin_prefetch(now.next + line * 64, 0, 2);
        now.next += LINES * 64;
        if (now.next >= now.end) ahead.turn(), now = ahead.now;
      }
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; ++r) {
        uint32_t two;
        std::memcpy(&two, x + r * k_padded + k + 2 * pair, 4);
#pragma GCC unroll 3
        for (int j = 0; j < 3; ++j) sum[r][j] = add_products(sum[r][j], two, panel + j * 512 + pair * 32);
      }
    }
  }
  ahead.now = now;
  for (int r = 0; r < ROWS; ++r)
    for (int j = 0; j < 3; ++j) store16(tile + r * 48 + j * 16, sum[r][j]);
}

template <int LINES>
INLINE void panel_passes(const bf16* x, int64_t rows, int64_t k_padded, const bf16* panel, float* tile, Ahead& ahead) {
  int64_t r = 0;
  for (; r + 8 <= rows; r += 8) panel_rows<8, LINES>(x + r * k_padded, k_padded, panel, tile + r * 48, ahead);
  if (r + 4 <= rows) panel_rows<4, LINES>(x + r * k_padded, k_padded, panel, tile + r * 48, ahead), r += 4;
  if (r + 2 <= rows) panel_rows<2, LINES>(x + r * k_padded, k_padded, panel, tile + r * 48, ahead), r += 2;
  if (r < rows) panel_rows<1, LINES>(x + r * k_padded, k_padded, panel, tile + r * 48, ahead);
}

INLINE void panel_any(const bf16* x, int64_t rows, int64_t k_padded, const bf16* panel, float* tile, Ahead& ahead) {
  const int64_t passes = rows / 8 + (rows >> 2 & 1) + (rows >> 1 & 1) + (rows & 1), pairs = passes * k_padded / 2;
  switch ((ahead.lines() + pairs - 1) / pairs) {
    case 0: return panel_passes<0>(x, rows, k_padded, panel, tile, ahead);
    case 1: return panel_passes<1>(x, rows, k_padded, panel, tile, ahead);
    case 2: return panel_passes<2>(x, rows, k_padded, panel, tile, ahead);
    case 3: return panel_passes<3>(x, rows, k_padded, panel, tile, ahead);
    default: return panel_passes<4>(x, rows, k_padded, panel, tile, ahead);
  }
}

#else

// Without bf16 products each pair of weights is widened to two float32, and x is float32 already. Sixteen columns by up to
// five rows: their sums, the weights and one x fill the sixteen registers of AVX2. Up to two rows keep the sums of even and
// odd k apart, because fewer chains than that would wait for each other.
typedef float v8 __attribute__((vector_size(32)));
typedef uint32_t u8 __attribute__((vector_size(32)));

INLINE v8 load8(const float* p) {
  v8 v;
  std::memcpy(&v, p, 32);
  return v;
}

template <int ROWS>
__attribute__((noinline)) void panel_rows(const float* x, int64_t k_padded, const bf16* panel, float* tile, Ahead& ahead) {
  constexpr int CHAINS = ROWS <= 2 ? 2 : 1;
  Range now = ahead.now;
  for (int64_t j = 0; j < 3; ++j) {
    v8 sum[CHAINS][ROWS][2] = {};
    const bf16* w = panel + j * 512;
    for (int64_t k = 0; k < k_padded; k += 32, w += 1536) {
      for (int64_t pair = 0; pair < 16; ++pair) {
        if (now.next < now.end) {
          __builtin_prefetch(now.next, 0, 2);
          now.next += 64;
          if (now.next >= now.end) ahead.turn(), now = ahead.now;
        }
        u8 low, high;
        std::memcpy(&low, w + pair * 32, 32);
        std::memcpy(&high, w + pair * 32 + 16, 32);
        const v8 even0 = (v8)(low << 16), even1 = (v8)(high << 16);
        const float* at = x + k + 2 * pair;
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r) {
          sum[0][r][0] += even0 * at[r * k_padded];
          sum[0][r][1] += even1 * at[r * k_padded];
        }
        const v8 odd0 = (v8)(low & 0xffff0000u), odd1 = (v8)(high & 0xffff0000u);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r) {
          sum[CHAINS - 1][r][0] += odd0 * at[r * k_padded + 1];
          sum[CHAINS - 1][r][1] += odd1 * at[r * k_padded + 1];
        }
      }
    }
    for (int r = 0; r < ROWS; ++r)
      for (int half = 0; half < 2; ++half) {
        const v8 total = CHAINS == 2 ? sum[0][r][half] + sum[1][r][half] : sum[0][r][half];
        std::memcpy(tile + r * 48 + j * 16 + half * 8, &total, 32);
      }
  }
  ahead.now = now;
}

INLINE void panel_any(const float* x, int64_t rows, int64_t k_padded, const bf16* panel, float* tile, Ahead& ahead) {
  const int64_t passes = (rows + 4) / 5;
  for (int64_t pass = 0; pass < passes; ++pass) {
    const int64_t r = rows * pass / passes, count = rows * (pass + 1) / passes - r;
    const auto some = [&]<int ROWS>() { panel_rows<ROWS>(x + r * k_padded, k_padded, panel, tile + r * 48, ahead); };
    switch (count) {
      case 5: some.template operator()<5>(); break;
      case 4: some.template operator()<4>(); break;
      case 3: some.template operator()<3>(); break;
      case 2: some.template operator()<2>(); break;
      default: some.template operator()<1>();
    }
  }
}

#endif

// This thread's share of x W^T. x: [rows padded to 16][k_padded] of `operand`, k_padded beyond k zero. Calls
// epilogue(row, panel, sums) with the 48 sums of each row and panel. All threads of a team call it; no barrier inside.
// `following`: the weight of the product after this one, whose first panel is fetched during the last of this one.
template <class Epilogue>
INLINE void product(const operand* x, int64_t rows, const PackedWeight& w, const PackedWeight* following, Later* later,
                    int thread, int threads, Epilogue&& epilogue) {
  const int64_t begin = w.panels * thread / threads, end = w.panels * (thread + 1) / threads;
  alignas(64) float tile[32 * 48];
#if HAS_BF16_PRODUCTS
  const bool amx = amx_enabled && rows >= 3;
  if (amx) set_tiles(rows);
#endif
  for (int64_t p = begin; p < end; ++p) {
    const bf16* panel = w.data + p * w.k_padded * 48;
    Ahead ahead;
    if (p + 1 < end)
      ahead.now = panel_of(w, p + 1);
    else if (following)
      ahead.now = panel_of(*following, following->panels * thread / threads);
    if (later) ahead.later = later, ahead.later_lines = int64_t(std::ceil(later->lines_per_k * double(w.k_padded)));
    if (ahead.now.next == nullptr) ahead.turn();
    for (int64_t r = 0; r < rows; r += 32) {
      const int64_t count = rows - r < 32 ? rows - r : 32;
      const operand* block = x + r * w.k_padded;
#if HAS_BF16_PRODUCTS
      if (amx && count > 16)
        panel_amx<true>(block, w.k_padded, panel, tile);
      else if (amx)
        panel_amx<false>(block, w.k_padded, panel, tile);
      else
#endif
        panel_any(block, count, w.k_padded, panel, tile, ahead);
      for (int64_t i = 0; i < count; ++i) epilogue(r + i, p, tile + i * 48);
    }
  }
#if HAS_BF16_PRODUCTS
  if (amx) _tile_release();
#endif
}

template <class T>
void linear(const T* x, int64_t rows, const PackedWeight& w, const float* bias, T* y, int threads) {
  const int64_t padded = (rows + 15) / 16 * 16;
  std::vector<operand> copy;
  const operand* input = reinterpret_cast<const operand*>(x);
  if (padded != rows || w.k != w.k_padded || !std::is_same_v<T, operand>) {
    copy.assign(size_t(padded * w.k_padded), operand{});
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < w.k; ++i) store(&copy[size_t(r * w.k_padded + i)], to_float(x[r * w.k + i]));
    input = copy.data();
  }
#pragma omp parallel num_threads(threads)
  product(input, rows, w, nullptr, nullptr, omp_get_thread_num(), omp_get_num_threads(), [&](int64_t row, int64_t panel, float* sums) {
    const int64_t first = panel * 48, count = w.n - first < 48 ? w.n - first : 48;
    for (int64_t i = 0; i < count; ++i) store(y + row * w.n + first + i, sums[i] + (bias ? bias[first + i] : 0.0f));
  });
}
