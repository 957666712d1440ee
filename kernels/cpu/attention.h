// Paged decode attention with the mass of each block. Included per instruction-set namespace.
//
// One task is one (row, KV head): the group's queries share every key and value read. Keys of a kept block are scored
// 16 tokens at a time; memory is asked for in advance through the block table, because the hardware prefetcher cannot
// follow it.

constexpr int64_t AHEAD = 3;

struct Segment {
  int64_t block, first, count, offset;  // logical block, first slot read, slots read, place in the score buffer
};

struct Following {
  const int32_t* table = nullptr;
  int64_t blocks = 0, kv_head = 0;
};

struct AttentionScratch {
  std::vector<float> scores, q;
  std::vector<bf16> q_pairs, p_pairs;
  std::vector<Segment> segments;
};

// One row and KV head. q: [group][d] float32. out: [group][d] float32, written. lse: [group].
// mass: per query head [group][mass_stride], or null; mass_mean: [blocks], the group's summed mass is added, or null.
// dense_lse: [group] log-sum-exp over dropped blocks too, or null. Blocks a keep-list drops are not read otherwise.
// `next`: what this thread attends to afterwards, whose first keys are asked for at the end.
template <int D, class T>
void attend_group(const CacheView<T>& cache, const int32_t* table, int64_t context, int64_t first_token,
                  const uint8_t* keep, int64_t kv_head, const float* query, float scale, int64_t group,
                  AttentionScratch& scratch, float* out, float* lse, float* mass, int64_t mass_stride,
                  float* mass_mean, float* dense_lse, Following next) {
  const int64_t d = cache.head_size, size = cache.block_size, stride = cache.kv_heads * d;
  const int64_t blocks = (context + size - 1) / size;
  auto& segments = scratch.segments;
  segments.clear();
  int64_t total = 0;
  for (int64_t b = first_token / size; b < blocks; ++b) {
    if (keep && !keep[b]) continue;
    const int64_t first = b * size < first_token ? first_token - b * size : 0;
    const int64_t count = (context - b * size < size ? context - b * size : size) - first;
    segments.push_back({b, first, count, total});
    total += count;
  }
  for (int64_t i = 0; i < group * d; ++i) out[i] = 0.0f;
  if (total == 0) {
    for (int64_t g = 0; g < group; ++g) {
      lse[g] = -INFINITY;
      if (dense_lse) dense_lse[g] = -INFINITY;
    }
    return;
  }
  constexpr bool PAIRS = HAS_BF16_PRODUCTS && D != 0 && std::is_same_v<T, bf16>;
  const std::conditional_t<PAIRS, bf16, float>* q;
  if constexpr (PAIRS) {
    scratch.q_pairs.resize(size_t(group * d));
    for (int64_t i = 0; i < group * d; i += W) store16(&scratch.q_pairs[size_t(i)], load16(query + i));
    q = scratch.q_pairs.data();
  } else {
    scratch.q.resize(size_t(group * d));
    for (int64_t i = 0; i < group * d; i += W) store16(&scratch.q[size_t(i)], load16(query + i) * scale);
    q = scratch.q.data();
  }
  const int64_t width = (total + W - 1) / W * W;  // row stride of the score buffer
  scratch.scores.resize(size_t(group * width));
  float* scores = scratch.scores.data();
  if constexpr (PAIRS) scratch.p_pairs.resize(size_t(group * width + 1));  // the last pair may start at the last value
  const auto* p = [&] {
    if constexpr (PAIRS)
      return scratch.p_pairs.data();
    else
      return scratch.scores.data();
  }();
  auto rows_of = [&](const T* pool, const Segment& s) {
    return pool + ((int64_t(table[s.block]) * size + s.first) * cache.kv_heads + kv_head) * d;
  };
  const int64_t n = int64_t(segments.size());
  // What is read `AHEAD` blocks after key block i: keys, then values, then the keys of what follows.
  const auto ask = [&](int64_t i) {
    if (i < 2 * n) {
      const Segment& segment = segments[i < n ? i : i - n];
      prefetch_rows(rows_of(i < n ? cache.keys : cache.values, segment), stride, segment.count, d);
    } else if (i - 2 * n < next.blocks && next.table[i - 2 * n] >= 0) {
      prefetch_rows(cache.keys + (int64_t(next.table[i - 2 * n]) * size * cache.kv_heads + next.kv_head) * d, stride, size, d);
    }
  };
  for (int64_t i = 0; i < n; ++i) {
    ask(i + AHEAD);
    score_block<D>(q, scale, group, d, rows_of(cache.keys, segments[i]), stride, segments[i].count, scores + segments[i].offset, width);
  }
  for (int64_t g = 0; g < group; ++g) {
    float* row = scores + g * width;
    for (int64_t t = total; t < width; ++t) row[t] = -INFINITY;
    vf top = load16(row);
    for (int64_t t = W; t < width; t += W) top = max(top, load16(row + t));
    const float m = max16(top);
    vf sum{};
    for (int64_t t = 0; t < width; t += W) {
      vf e = exp16(load16(row + t) - m);
      sum += e;
      store16(row + t, e);
    }
    const float s = sum16(sum), inverse = 1.0f / s;
    for (int64_t t = 0; t < width; t += W) {
      const vf p = load16(row + t) * inverse;
      store16(row + t, p);
      if constexpr (PAIRS) store16(&scratch.p_pairs[size_t(g * width + t)], p);
    }
    lse[g] = m + std::log(s);
    if (mass || mass_mean)
      for (const Segment& segment : segments) {
        float part = 0.0f;
        for (int64_t t = 0; t < segment.count; ++t) part += row[segment.offset + t];
        if (mass) mass[g * mass_stride + segment.block] = part;
        if (mass_mean) mass_mean[segment.block] += part;
      }
  }
  for (int64_t i = 0; i < n; ++i) {
    ask(n + i + AHEAD);
    mix_block<D>(p + segments[i].offset, width, group, d, rows_of(cache.values, segments[i]), stride, segments[i].count, out);
  }
  if (dense_lse) {  // what was dropped: keys only, never part of the result
    for (int64_t g = 0; g < group; ++g) dense_lse[g] = lse[g];
    scratch.scores.resize(size_t(group * (size + W)));
    for (int64_t b = first_token / size; b < blocks; ++b) {
      if (!keep || keep[b]) continue;
      const int64_t first = b * size < first_token ? first_token - b * size : 0;
      const Segment segment{b, first, (context - b * size < size ? context - b * size : size) - first, 0};
      score_block<D>(q, scale, group, d, rows_of(cache.keys, segment), stride, segment.count, scratch.scores.data(), size + W);
      for (int64_t g = 0; g < group; ++g)
        for (int64_t t = 0; t < segment.count; ++t) {
          const float s = scratch.scores[size_t(g * (size + W) + t)];
          const float high = s > dense_lse[g] ? s : dense_lse[g], low = s > dense_lse[g] ? dense_lse[g] : s;
          dense_lse[g] = high + std::log1p(std::exp(low - high));
        }
    }
  }
}

template <class T, class... Args>
void attend(const CacheView<T>& cache, Args&&... args) {
  if constexpr (std::is_same_v<T, bf16>) {  // for float32 one version is enough
    if (cache.head_size == 64) return attend_group<64>(cache, std::forward<Args>(args)...);
    if (cache.head_size == 128) return attend_group<128>(cache, std::forward<Args>(args)...);
  }
  return attend_group<0>(cache, std::forward<Args>(args)...);
}

template <class T>
void paged_attention(const AttentionArgs<T>& a, int threads) {
  const int64_t d = a.cache.head_size, kv_heads = a.cache.kv_heads, group = a.heads / kv_heads;
#pragma omp parallel num_threads(threads)
  {
    AttentionScratch scratch;
    std::vector<float> q(size_t(group * d)), out(size_t(group * d)), lse(static_cast<size_t>(group));
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < a.rows * kv_heads; ++task) {
      const int64_t row = task / kv_heads, head = task % kv_heads, at = row * a.heads + head * group;
      for (int64_t i = 0; i < group * d; ++i) q[size_t(i)] = to_float(a.q[at * d + i]);
      const int64_t context = a.context_tokens[row];
      const int64_t first = a.window > 0 && context > a.window ? context - a.window : 0;
      attend(a.cache, a.block_table + row * a.max_blocks, context, first,
             a.keep ? a.keep + (row * kv_heads + head) * a.max_blocks : nullptr, head, q.data(), a.scale, group, scratch,
             out.data(), lse.data(), a.mass + at * a.max_blocks, a.max_blocks, (float*)nullptr, (float*)nullptr,
             Following{});
      for (int64_t i = 0; i < group * d; ++i) store(a.out + at * d + i, out[size_t(i)]);
      for (int64_t g = 0; g < group; ++g) a.log_sum_exp[at + g] = lse[size_t(g)];
    }
  }
}
