// Statistics and one sample for each row of logits. Included per instruction-set namespace; laws in kernels/laws.py.
//
// With m = max z and y = max((z - m) / T, -120), e = exp(y) is exactly 0 at the floor, so a masked token adds exact
// zeros and nothing is ever 0 * inf. One pass sums e, e y, e y^2; because the largest y is 0, |mean y| is at most
// about ln n, so V = E[y^2] - E[y]^2 loses no digits that matter. Float sums run over 1,024 logits, then double.

constexpr int64_t CHUNK = 1024;

struct Moments {
  double total = 0.0, first = 0.0, second = 0.0;
  double log_total() const { return std::log(total); }
  double mean() const { return first / total; }
  double entropy(double most) const {
    const double h = log_total() - mean();
    return h < 0.0 ? 0.0 : h > most ? most : h;
  }
  double varentropy() const {
    const double v = second / total - mean() * mean();
    return v < 0.0 ? 0.0 : v;
  }
};

struct ChunkSums {
  vf total{}, first{}, second{};
  INLINE_MEMBER void add(vf y) {
    vf e = exp16(y), ey = e * y;
    total += e;
    first += ey;
    second += ey * y;
  }
  INLINE_MEMBER void flush(Moments& m) const {
    m.total += sum16(total);
    m.first += sum16(first);
    m.second += sum16(second);
  }
};

INLINE vf load_tail(const float* p, int64_t count) {  // missing lanes are -inf: probability zero
  vf v = splat(-INFINITY);
  for (int64_t i = 0; i < count; ++i) v[i] = p[i];
  return v;
}

// Moments at 1/T = `inverse`, and at T = 1 too if `raw` is given. chunk_total: tempered sum of each chunk, or null.
static void moments(const float* z, int64_t n, float m, float inverse, Moments* raw, Moments* tempered, double* chunk_total) {
  const vf floor = splat(-120.0f);
  for (int64_t c = 0; c < n; c += CHUNK) {
    const int64_t end = c + CHUNK < n ? c + CHUNK : n;
    ChunkSums at_one, at_t;
    for (int64_t i = c; i < end; i += W) {
      vf x = (i + W <= end ? load16(z + i) : load_tail(z + i, end - i)) - m;
      if (raw) at_one.add(max(x, floor));
      if (tempered) at_t.add(max(x * inverse, floor));
    }
    if (raw) at_one.flush(*raw);
    if (tempered) at_t.flush(*tempered);
    if (chunk_total) chunk_total[c / CHUNK] = sum16(tempered ? at_t.total : at_one.total);
  }
}

// u = ln T with H(T) = target: Newton with slope V inside a shrinking bracket (kernels/laws.py).
static float solve_temperature(const StatsArgs& a, const float* z, float m, float start, float target) {
  const float first = a.bracket_low, last = a.bracket_high;
  float low = first, high = last, u = std::log(start > 1e-30f ? start : 1e-30f);
  u = u < low ? low : u > high ? high : u;
  double previous = INFINITY;
  for (int i = 0; i < a.solve_iterations && high - low > 1e-6f; ++i) {
    Moments at;
    moments(z, a.n, m, std::exp(-u), nullptr, &at, nullptr);
    const double gap = target - at.entropy(a.entropy_max);
    if ((u >= last && gap >= 0.0) || (u <= first && gap <= 0.0) || std::fabs(gap) <= a.tolerance) break;
    (gap > 0.0 ? low : high) = u;
    float next = u + float(gap / std::fmax(at.varentropy(), 1e-12));
    const bool stalled = std::fabs(gap) > 0.5 * previous;
    if (next >= high && high == last) next = last;
    if (next <= low && low == first) next = first;
    const bool inside = (next > low && next < high) || next == last || next == first;
    u = inside && !stalled ? next : 0.5f * (low + high);
    previous = std::fabs(gap);
  }
  const float t = std::exp(u);
  return t < a.temperature_min ? a.temperature_min : t > a.temperature_max ? a.temperature_max : t;
}

INLINE void philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint64_t seed, uint32_t* out) {
  uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t(0xD2511F53u) * c0, p1 = uint64_t(0xCD9E8D57u) * c2;
    c0 = uint32_t(p1 >> 32) ^ c1 ^ k0;
    c2 = uint32_t(p0 >> 32) ^ c3 ^ k1;
    c1 = uint32_t(p1), c3 = uint32_t(p0);
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

INLINE double uniform_of(uint32_t word) { return (double(word >> 9) + 0.5) * 0x1p-23; }

// The Gumbel-max choice as the first of exponential arrivals: argmin -ln(u_i) / w_i, w = exp(y), is the same token.
struct GumbelRace {
  const StatsArgs& a;
  uint32_t request, token;
  double best = INFINITY;
  int64_t choice = -1;
  INLINE_MEMBER void consider(int64_t index, float y, double u) {
    const double w = std::exp(double(y));
    if (1.0 - u > best * w) return;  // -ln u >= 1 - u: cannot win
    const double arrival = -std::log(u) / w;
    if (arrival < best) best = arrival, choice = index;
  }
};

static int64_t gumbel_all(GumbelRace race, const float* z, float m, float inverse) {
  alignas(64) uint32_t words[4][64];
  for (int64_t c = 0; c < race.a.n; c += 256) {
    for (int j = 0; j < 64; ++j) {
      uint32_t w[4];
      philox(uint32_t(c / 4 + j), race.token, race.request, race.a.stream, race.a.seed, w);
      for (int lane = 0; lane < 4; ++lane) words[lane][j] = w[lane];
    }
    const int64_t end = c + 256 < race.a.n ? c + 256 : race.a.n;
    for (int64_t i = c; i < end; ++i) {
      const float y = (z[i] - m) * inverse;
      if (y > -120.0f) race.consider(i, y, uniform_of(words[i & 3][(i - c) / 4]));
    }
  }
  return race.choice;
}

struct Candidate {
  int64_t index;
  float y;
};

// Tokens that pass min-p, Mirostat and top-H, most likely first where top-H is on, else in index order.
static std::vector<Candidate> truncate(const StatsArgs& a, int64_t row, const float* z, float m, float inverse, double log_total,
                                       double entropy) {
  float floor = -120.0f;
  if (a.min_p && a.min_p[row] > 0.0f) floor = std::fmax(floor, std::log(a.min_p[row]));
  if (a.mu && !std::isnan(a.mu[row])) floor = std::fmax(floor, float(log_total - a.mu[row]));
  floor = std::fmin(floor, 0.0f);  // the most likely token always passes
  std::vector<Candidate> kept;
  for (int64_t i = 0; i < a.n; ++i) {
    const float y = (z[i] - m) * inverse;
    if (y >= floor && y > -120.0f) kept.push_back({i, y});
  }
  if (floor == 0.0f && a.mu && !std::isnan(a.mu[row]) && log_total > a.mu[row]) kept.resize(1);
  if (!a.top_h || std::isnan(a.top_h[row])) return kept;
  const auto before = [](const Candidate& p, const Candidate& q) { return p.y > q.y || (p.y == q.y && p.index < q.index); };
  const double limit = double(a.top_h[row]) * entropy + 1e-6;
  double total = 0.0, weighted = 0.0;
  size_t sorted = 0;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (i == sorted) {  // sort the front in growing pieces: the prefix is usually short
      const size_t next = std::min(kept.size(), std::max<size_t>(256, 4 * sorted));
      std::nth_element(kept.begin() + long(sorted), kept.begin() + long(next) - 1, kept.end(), before);
      std::sort(kept.begin() + long(sorted), kept.begin() + long(next), before);
      sorted = next;
    }
    const double e = std::exp(double(kept[i].y));
    total += e;
    weighted += e * kept[i].y;
    if (i > 0 && std::log(total) - weighted / total > limit) {
      kept.resize(i);
      break;
    }
  }
  std::sort(kept.begin(), kept.end(), [](const Candidate& p, const Candidate& q) { return p.index < q.index; });
  return kept;
}

static int64_t sample(const StatsArgs& a, int64_t row, const float* z, float m, float inverse, const Moments& at,
                      const double* chunk_total) {
  GumbelRace race{a, uint32_t(a.request_id[row]), uint32_t(a.token_index[row])};
  uint32_t words[4];
  philox(0, race.token, race.request, a.stream, a.seed, words);
  const double u = (double(words[0] >> 9) + uniform_of(words[1])) * 0x1p-23;
  const bool cut = (a.min_p && a.min_p[row] > 0.0f) || (a.mu && !std::isnan(a.mu[row])) || (a.top_h && !std::isnan(a.top_h[row]));
  if (cut) {
    const auto kept = truncate(a, row, z, m, inverse, at.log_total(), at.entropy(a.entropy_max));
    if (a.gumbel) {
      for (const Candidate& c : kept) {
        philox(uint32_t(c.index / 4), race.token, race.request, a.stream, a.seed, words);
        race.consider(c.index, c.y, uniform_of(words[c.index & 3]));
      }
      return race.choice;
    }
    double total = 0.0, sum = 0.0;
    for (const Candidate& c : kept) total += std::exp(double(c.y));
    for (const Candidate& c : kept) {
      sum += std::exp(double(c.y));
      if (sum > u * total) return c.index;
    }
    return kept.back().index;
  }
  if (a.gumbel) return gumbel_all(race, z, m, inverse);
  double point = u * at.total;
  int64_t chunk = 0, last = (a.n - 1) / CHUNK;
  for (; chunk < last && point >= chunk_total[chunk]; ++chunk) point -= chunk_total[chunk];
  // Rounding may leave the point just past a chunk: then its last token of positive probability is taken.
  for (int64_t c = chunk; c >= 0; --c) {
    int64_t choice = -1;
    double sum = 0.0;
    for (int64_t i = c * CHUNK; i < a.n && i < (c + 1) * CHUNK; ++i) {
      const float e = exp16(max(splat((z[i] - m) * inverse), splat(-120.0f)))[0];
      if (e <= 0.0f) continue;
      choice = i;
      sum += e;
      if (c == chunk && sum > point) return i;
    }
    if (choice >= 0) return choice;
  }
  return 0;
}

static void stats_row(const StatsArgs& a, int64_t row, std::vector<double>& chunk_total) {
  const float* z = a.logits + row * a.n;
  vf top = splat(-INFINITY);
  vi bad{};
  int64_t i = 0;
  for (; i + W <= a.n; i += W) {
    vf v = load16(z + i);
    bad |= v != v;
    top = max(v, top);
  }
  float m = max16(top);
  bool nan = false;
  for (int lane = 0; lane < 16; ++lane) nan |= bad[lane] != 0;
  for (; i < a.n; ++i) {
    nan |= z[i] != z[i];
    m = z[i] > m ? z[i] : m;
  }
  float* f = a.floats + row;
  const int64_t rows = a.rows;
  float t = a.temperature[row];
  t = t < a.temperature_min ? a.temperature_min : t > a.temperature_max ? a.temperature_max : t;
  if (t > 0.0f && t < 1e-30f) t = 1e-30f;
  if (nan || !std::isfinite(m)) {
    for (int j = 0; j < 8; ++j) f[j * rows] = NAN;
    a.token_id[row] = -1;
    a.temperature_applied[row] = t;
    return;
  }
  if (a.target && !std::isnan(a.target[row])) t = solve_temperature(a, z, m, t > 0.0f ? t : 1.0f, a.target[row]);
  a.temperature_applied[row] = t;
  const bool greedy = t == 0.0f, one = t == 1.0f;
  const float inverse = greedy ? 1.0f : 1.0f / t;
  Moments raw, tempered;
  moments(z, a.n, m, inverse, &raw, greedy || one ? nullptr : &tempered, chunk_total.data());
  const Moments& at = greedy || one ? raw : tempered;
  int64_t choice = 0;
  if (greedy)
    while (z[choice] != m) ++choice;
  else
    choice = sample(a, row, z, m, inverse, at, chunk_total.data());
  const double x = double(z[choice]) - m;
  f[0] = float(m + raw.log_total());
  f[1 * rows] = float(raw.entropy(a.entropy_max));
  f[2 * rows] = float(raw.varentropy());
  f[3 * rows] = greedy ? 0.0f : float(at.entropy(a.entropy_max));
  f[4 * rows] = greedy ? 0.0f : float(at.varentropy());
  f[5 * rows] = float(1.0 / raw.total);
  f[6 * rows] = greedy ? 0.0f : float(std::fmax(at.log_total() - x * inverse, 0.0));
  f[7 * rows] = float(std::fmax(raw.log_total() - x, 0.0));
  a.token_id[row] = choice;
}

static void logit_stats(const StatsArgs& a, int threads) {
#pragma omp parallel num_threads(threads)
  {
    std::vector<double> chunk_total(static_cast<size_t>((a.n + CHUNK - 1) / CHUNK));
#pragma omp for schedule(dynamic, 1)
    for (int64_t row = 0; row < a.rows; ++row) stats_row(a, row, chunk_total);
  }
}
