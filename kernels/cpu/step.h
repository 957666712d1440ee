// A whole forward pass of a Llama-family decoder as one op: one team of threads, one barrier after each stage.
// Included per instruction-set namespace.
//
// Every token of the batch is one row, whether it decodes or belongs to a chunk of prefill: all keys of a layer are
// written before any query reads, and a query sees the keys up to its own position, which is the causal mask. The
// residual stream is float32; what enters a product is an `operand`: bf16 where the machine multiplies bf16, else float32.
// gate_up has its rows interleaved, 24 of gate and 24 of up per panel, so that silu(gate) * up is taken from the sums while
// they are in registers. After the last attention only tokens whose logits are wanted go on.

struct StepBuffers {
  std::vector<float> residual, last_residual, qkv;
  std::vector<operand> normed, attended, last_attended, gated;
};

INLINE void copy_panel(float* y, const float* sums, int64_t count) {
  if (count == 48)
    for (int64_t i = 0; i < 48; i += W) store16(y + i, load16(sums + i));
  else
    std::memcpy(y, sums, size_t(count) * sizeof(float));
}

static void decoder_step(const StepArgs& a, int threads) {
  const int64_t tokens = a.tokens, padded = (tokens + 15) / 16 * 16, hidden = a.hidden, heads = a.heads;
  const CacheView<bf16>& shape = a.layers[0].cache;
  const int64_t d = shape.head_size, kv_heads = shape.kv_heads, group = heads / kv_heads, size = shape.block_size;
  const int64_t width = (heads + 2 * kv_heads) * d;
  const int64_t out_padded = a.layers[0].output.k_padded, down_padded = a.layers[0].down.k_padded;
  const int64_t hidden_padded = a.layers[0].qkv.k_padded;
  static thread_local StepBuffers b;  // kept between steps, so that no step allocates
  b.residual.resize(size_t(tokens * hidden));
  b.qkv.resize(size_t(tokens * width));
  b.normed.assign(size_t(padded * hidden_padded), operand{});
  b.attended.assign(size_t(padded * out_padded), operand{});
  b.gated.assign(size_t(padded * down_padded), operand{});
  const bool fewer = a.num_logits < tokens;
  if (fewer) {
    b.last_residual.resize(size_t(a.num_logits * hidden));
    b.last_attended.assign(size_t((a.num_logits + 15) / 16 * 16 * out_padded), operand{});
  }
  float* const qkv = b.qkv.data();
  operand *const normed = b.normed.data(), *const gated = b.gated.data();
  float *const all_residual = b.residual.data(), *const last_residual = b.last_residual.data();
  operand *const all_attended = b.attended.data(), *const last_attended = b.last_attended.data();

  int64_t longest = 0, total = 0;
  bool distinct = true;
  for (int64_t t = 0; t < tokens; ++t) {
    longest = a.position[t] + 1 > longest ? a.position[t] + 1 : longest;
    total += a.position[t] + 1;
    distinct = distinct && (t == 0 || a.row[t] != a.row[t - 1]);
  }

#pragma omp parallel num_threads(threads)
  {
    const int thread = omp_get_thread_num(), team = omp_get_num_threads();
    int64_t rows = tokens;
    float* residual = all_residual;
    operand* attended = all_attended;
    // Rows of their own and not too long: each thread takes its share of rows in order, equal in tokens read, and their keys
    // and values are asked for during the products before.
    const bool in_order = distinct && tokens >= 2 * team && longest * kv_heads * d * 4 <= 512 * 1024;
    const auto first_of = [&](int part) {
      int64_t t = 0;
      for (int64_t read = 0; t < tokens && read * team < total * part; ++t) read += a.position[t] + 1;
      return t;
    };
    const int64_t first_row = first_of(thread), end_row = first_of(thread + 1);
    Later later;
    const auto inputs = [&](const PackedWeight& w) {  // of all panels this thread multiplies
      return (w.panels * (thread + 1) / team - w.panels * thread / team) * w.k_padded;
    };
    const auto kept_anywhere = [&](int64_t row, int64_t block) {
      bool any = a.keep == nullptr;
      for (int64_t head = 0; head < kv_heads && !any; ++head) any = a.keep[(row * kv_heads + head) * a.max_blocks + block];
      return any;
    };
    // The keys and values of this thread's rows in a layer, to be asked for during products with `k` inputs.
    const auto read_later = [&](const StepLayer& layer, int64_t k) {
      later.clear();
      const int64_t block_bytes = size * kv_heads * d * int64_t(sizeof(bf16));
      for (int64_t t = first_row; t < end_row; ++t) {
        const int64_t seen_from = layer.window > 0 ? std::max<int64_t>(a.position[t] + 1 - layer.window, 0) : 0;
        for (const bf16* pool : {layer.cache.keys, layer.cache.values})
          for (int64_t b = seen_from / size; b * size < a.position[t]; ++b) {
            if (!kept_anywhere(a.row[t], b)) continue;
            const char* block = reinterpret_cast<const char*>(pool) + a.block_table[a.row[t] * a.max_blocks + b] * block_bytes;
            const int64_t tokens_in = std::min(size, a.position[t] - b * size);
            later.ranges.push_back({block, block + tokens_in * kv_heads * d * int64_t(sizeof(bf16))});
          }
      }
      later.spread(k);
    };
    AttentionScratch scratch;
    std::vector<float> out(size_t(group * d)), lse(static_cast<size_t>(group)), dense(static_cast<size_t>(group));
    const auto norm = [&](const bf16* weight) {
#pragma omp for schedule(static)
      for (int64_t t = 0; t < rows; ++t)
        rms_norm_row(residual + t * hidden, weight, (const float*)nullptr, a.eps, hidden, normed + t * hidden_padded);
    };
    const auto add_to_residual = [&](int64_t row, int64_t panel, const float* sums) {
      const int64_t first = panel * 48, count = hidden - first < 48 ? hidden - first : 48;
      float* r = residual + row * hidden + first;
      if (count == 48)
        for (int64_t i = 0; i < 48; i += W) store16(r + i, load16(r + i) + load16(sums + i));
      else
        for (int64_t i = 0; i < count; ++i) r[i] += sums[i];
    };
#pragma omp for schedule(static)
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t i = 0; i < hidden; ++i) residual[t * hidden + i] = to_float(a.embedding[a.token_id[t] * hidden + i]);

    for (int64_t index = 0; index < a.num_layers; ++index) {
      const StepLayer& layer = a.layers[index];
      norm(layer.input_norm);
      if (in_order && index == 0) read_later(layer, inputs(layer.qkv));
      product(normed, tokens, layer.qkv, &layer.output, &later, thread, team, [&](int64_t row, int64_t panel, const float* sums) {
        const int64_t first = panel * 48, count = width - first < 48 ? width - first : 48;
        float* y = qkv + row * width + first;
        copy_panel(y, sums, count);
        if (layer.qkv_bias)
          for (int64_t i = 0; i < count; ++i) y[i] += layer.qkv_bias[first + i];
      });
#pragma omp barrier
#pragma omp for schedule(static)
      for (int64_t t = 0; t < tokens; ++t) {
        const int64_t position = a.position[t];
        const float *cos = a.cos + position * d / 2, *sin = a.sin + position * d / 2;
        float *q = qkv + t * width, *k = q + heads * d, *v = k + kv_heads * d;
        const int64_t block = a.block_table[a.row[t] * a.max_blocks + position / size];
        const int64_t slot = (block * size + position % size) * kv_heads * d;
        for (int64_t h = 0; h < heads; ++h) {
          if (layer.q_norm) rms_norm_row(q + h * d, layer.q_norm, (const float*)nullptr, a.eps, d, q + h * d);
          rotary_head(q + h * d, cos, sin, d, q + h * d);
        }
        for (int64_t h = 0; h < kv_heads; ++h) {
          if (layer.k_norm) rms_norm_row(k + h * d, layer.k_norm, (const float*)nullptr, a.eps, d, k + h * d);
          rotary_head(k + h * d, cos, sin, d, layer.cache.keys + slot + h * d);
        }
        for (int64_t i = 0; i < kv_heads * d; i += W) store16(layer.cache.values + slot + i, load16(v + i));
      }
      const auto attend_one = [&](int64_t t, int64_t head, Following next) {
        const int64_t context = a.position[t] + 1, row = a.row[t];
        const int64_t first = layer.window > 0 && context > layer.window ? context - layer.window : 0;
        const uint8_t* keep = a.keep ? a.keep + (row * kv_heads + head) * a.max_blocks : nullptr;
        const bool measured = a.measured && a.measured[t], all = measured && keep && a.dropped_by_head;
        float* mass = measured ? a.mass_by_head + (t * kv_heads + head) * a.max_blocks : nullptr;
        attend(layer.cache, a.block_table + row * a.max_blocks, context, first, keep, head,
               (const float*)(qkv + t * width + head * group * d), a.scale, group, scratch, out.data(), lse.data(), (float*)nullptr,
               int64_t(0), mass, all ? dense.data() : nullptr, next);
        for (int64_t i = 0; i < group * d; i += W) store16(attended + t * out_padded + head * group * d + i, load16(&out[size_t(i)]));
        if (all) {
          float lost = 0.0f;
          for (int64_t g = 0; g < group; ++g) lost -= std::expm1(lse[size_t(g)] - dense[size_t(g)]);
          a.dropped_by_head[t * kv_heads + head] += lost;
        }
      };
      if (in_order) {
        for (int64_t t = first_row; t < end_row; ++t)
          for (int64_t head = 0; head < kv_heads; ++head) {
            const bool last = head + 1 == kv_heads;
            const int64_t then = std::min(t + last, end_row - 1);
            Following next{a.block_table + a.row[then] * a.max_blocks, a.position[then] / size + 1, last ? 0 : head + 1};
            attend_one(t, head, a.keep ? Following{} : next);  // with a keep-list it would fetch what is dropped
          }
#pragma omp barrier
      } else {
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < tokens * kv_heads; ++task) attend_one(task / kv_heads, task % kv_heads, {});
      }
      if (fewer && index + 1 == a.num_layers) {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < a.num_logits; ++i) {
          std::memcpy(last_residual + i * hidden, residual + a.logit_token[i] * hidden, size_t(hidden) * sizeof(float));
          std::memcpy(last_attended + i * out_padded, attended + a.logit_token[i] * out_padded, size_t(out_padded) * sizeof(operand));
        }
        rows = a.num_logits, residual = last_residual, attended = last_attended;
      }
      product(attended, rows, layer.output, &layer.gate_up, &later, thread, team, add_to_residual);
#pragma omp barrier
      norm(layer.post_norm);
      product(normed, rows, layer.gate_up, &layer.down, &later, thread, team, [&](int64_t row, int64_t panel, const float* sums) {
        const int64_t first = panel * 24, count = a.intermediate - first < 24 ? a.intermediate - first : 24;
        operand* y = gated + row * down_padded + first;
        swiglu_row(sums, sums + 24, count, y);
      });
#pragma omp barrier
      if (in_order && index + 1 < a.num_layers)
        read_later(a.layers[index + 1], inputs(layer.down) + inputs(a.layers[index + 1].qkv));
      product(gated, rows, layer.down, index + 1 < a.num_layers ? &a.layers[index + 1].qkv : &a.head, &later, thread, team, add_to_residual);
#pragma omp barrier
    }
#pragma omp for schedule(static)
    for (int64_t i = 0; i < a.num_logits; ++i)
      rms_norm_row(residual + (fewer ? i : a.logit_token[i]) * hidden, a.final_norm, (const float*)nullptr, a.eps, hidden,
                   normed + i * hidden_padded);
    product(normed, a.num_logits, a.head, nullptr, nullptr, thread, team, [&](int64_t row, int64_t panel, const float* sums) {
      const int64_t first = panel * 48, count = a.head.n - first < 48 ? a.head.n - first : 48;
      copy_panel(a.logits + row * a.head.n + first, sums, count);
    });
  }
}
