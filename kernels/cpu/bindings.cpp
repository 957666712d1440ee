// Python's view: checks every tensor, then hands plain pointers to the compute code.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "compute.h"

namespace {

using at::Tensor;
using workbench_cpu::bf16;
using OptionalTensor = std::optional<Tensor>;

// The index of the instruction set in use; tests change it to hold all of them to one reference.
size_t chosen = 0;
const workbench_cpu::Kernels& use() { return workbench_cpu::instruction_sets()[chosen].kernels; }

template <class T>
T* ptr(const Tensor& t) {
  return reinterpret_cast<T*>(t.data_ptr());
}

void check(const Tensor& t, const char* name, at::ScalarType dtype, at::IntArrayRef shape) {
  TORCH_CHECK_VALUE(t.device().is_cpu(), name, " must be on the CPU, got ", t.device());
  TORCH_CHECK_TYPE(t.scalar_type() == dtype, name, " must be ", dtype, ", got ", t.scalar_type());
  TORCH_CHECK_VALUE(t.sizes() == shape, name, " must have shape ", shape, ", got ", t.sizes());
  TORCH_CHECK_VALUE(t.is_contiguous(), name, " must be contiguous, got strides ", t.strides(), "; call .contiguous()");
}

void check_float(const Tensor& t, const char* name) {
  TORCH_CHECK_TYPE(t.scalar_type() == at::kFloat || t.scalar_type() == at::kBFloat16, name,
                   " must be float32 or bfloat16, got ", t.scalar_type());
}

int threads() { return at::get_num_threads(); }

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const auto& set : workbench_cpu::instruction_sets()) names.push_back(set.name);
  return names;
}

void set_instruction_set(const std::string& name) {
  const auto names = instruction_sets();
  const auto found = std::find(names.begin(), names.end(), name);
  TORCH_CHECK_VALUE(found != names.end(), "instruction set must be one this CPU runs, got ", name);
  chosen = size_t(found - names.begin());
  workbench_cpu::amx_enabled = workbench_cpu::instruction_sets()[chosen].amx;
}

std::tuple<Tensor, Tensor> rms_norm(const Tensor& x, const Tensor& weight, double eps, const OptionalTensor& residual) {
  check_float(x, "x");
  const int64_t d = x.size(-1), rows = d ? x.numel() / d : 0;
  check(x, "x", x.scalar_type(), x.sizes());
  check(weight, "weight", x.scalar_type(), {d});
  if (residual) check(*residual, "residual", x.scalar_type(), x.sizes());
  Tensor y = at::empty_like(x), total = residual ? at::empty_like(x) : x;
  if (x.scalar_type() == at::kFloat)
    use().rms_norm_float(ptr<float>(x), residual ? ptr<float>(*residual) : nullptr, ptr<float>(weight), float(eps), rows, d,
                         ptr<float>(y), ptr<float>(total), threads());
  else
    use().rms_norm_bf16(ptr<bf16>(x), residual ? ptr<bf16>(*residual) : nullptr, ptr<bf16>(weight), float(eps), rows, d,
                        ptr<bf16>(y), ptr<bf16>(total), threads());
  return {y, total};
}

std::tuple<Tensor, Tensor> rotary(const Tensor& q, const Tensor& k, const Tensor& cos, const Tensor& sin) {
  check_float(q, "q");
  TORCH_CHECK_VALUE(q.dim() == 3 && k.dim() == 3 && q.size(0) == k.size(0) && q.size(2) == k.size(2) && q.size(2) % 2 == 0,
                    "q must be [tokens, heads, d] and k [tokens, kv_heads, d] with d even, got ", q.sizes(), " and ", k.sizes());
  TORCH_CHECK_TYPE(k.scalar_type() == q.scalar_type(), "k must be ", q.scalar_type(), ", got ", k.scalar_type());
  const int64_t tokens = q.size(0), heads = q.size(1), kv_heads = k.size(1), d = q.size(2);
  for (const Tensor& t : {q, k})  // views of a fused qkv product are fine: only the token stride may differ
    TORCH_CHECK_VALUE(t.device().is_cpu() && t.stride(2) == 1 && t.stride(1) == d,
                      "q and k must be CPU tensors whose heads are contiguous, got strides ", t.strides());
  check(cos, "cos", at::kFloat, {tokens, d / 2});
  check(sin, "sin", at::kFloat, {tokens, d / 2});
  Tensor q_out = at::empty({tokens, heads, d}, q.options()), k_out = at::empty({tokens, kv_heads, d}, k.options());
  if (q.scalar_type() == at::kFloat)
    use().rotary_float(ptr<float>(q), q.stride(0), ptr<float>(k), k.stride(0), ptr<float>(cos), ptr<float>(sin), tokens, heads,
                       kv_heads, d, ptr<float>(q_out), ptr<float>(k_out), threads());
  else
    use().rotary_bf16(ptr<bf16>(q), q.stride(0), ptr<bf16>(k), k.stride(0), ptr<float>(cos), ptr<float>(sin), tokens, heads,
                      kv_heads, d, ptr<bf16>(q_out), ptr<bf16>(k_out), threads());
  return {q_out, k_out};
}

Tensor swiglu(const Tensor& gate_up) {
  check_float(gate_up, "gate_up");
  check(gate_up, "gate_up", gate_up.scalar_type(), gate_up.sizes());
  TORCH_CHECK_VALUE(gate_up.dim() >= 1 && gate_up.size(-1) % 2 == 0, "gate_up must have an even last axis, got ", gate_up.sizes());
  auto shape = gate_up.sizes().vec();
  const int64_t size = shape.back() / 2, rows = size ? gate_up.numel() / (2 * size) : 0;
  shape.back() = size;
  Tensor y = at::empty(shape, gate_up.options());
  if (gate_up.scalar_type() == at::kFloat)
    use().swiglu_float(ptr<float>(gate_up), rows, size, ptr<float>(y), threads());
  else
    use().swiglu_bf16(ptr<bf16>(gate_up), rows, size, ptr<bf16>(y), threads());
  return y;
}

void check_table(const Tensor& block_table, int64_t row, int64_t context, int64_t size, int64_t num_blocks) {
  const int64_t max_blocks = block_table.size(1), used = (context + size - 1) / size;
  TORCH_CHECK_VALUE(context >= 0 && used <= max_blocks, "context of row ", row, " must be in [0, max_blocks * block_size] = [0, ",
                    max_blocks * size, "], got ", context);
  const int32_t* table = ptr<int32_t>(block_table) + row * max_blocks;
  for (int64_t b = 0; b < used; ++b)
    TORCH_CHECK_VALUE(table[b] >= 0 && table[b] < num_blocks, "block_table[", row, ", ", b, "] must be in [0, ", num_blocks,
                      ") within the row's context, got ", table[b]);
}

template <class T>
workbench_cpu::CacheView<T> cache_view(const Tensor& keys, const Tensor& values, at::ScalarType dtype) {
  TORCH_CHECK_VALUE(keys.dim() == 4, "k_cache must be [num_blocks, block_size, kv_heads, d], got ", keys.sizes());
  check(keys, "k_cache", dtype, keys.sizes());
  check(values, "v_cache", dtype, keys.sizes());
  TORCH_CHECK_VALUE(keys.size(3) % 16 == 0 && keys.size(3) <= 256, "d must be a multiple of 16 up to 256 here, got ", keys.size(3));
  return {ptr<T>(keys), ptr<T>(values), keys.size(0), keys.size(1), keys.size(2), keys.size(3)};
}

template <class T>
void run_attention(const Tensor& q, const Tensor& keys, const Tensor& values, const Tensor& table, const Tensor& context,
                   double scale, const OptionalTensor& keep, int64_t window, Tensor& out, Tensor& lse, Tensor& mass) {
  workbench_cpu::AttentionArgs<T> a{};
  a.cache = cache_view<T>(keys, values, q.scalar_type());
  a.q = ptr<T>(q);
  a.block_table = ptr<int32_t>(table);
  a.context_tokens = ptr<int32_t>(context);
  a.rows = q.size(0), a.heads = q.size(1), a.max_blocks = table.size(1), a.window = window;
  a.scale = float(scale);
  a.keep = keep ? ptr<uint8_t>(*keep) : nullptr;
  a.out = ptr<T>(out);
  a.log_sum_exp = ptr<float>(lse);
  a.mass = ptr<float>(mass);
  if constexpr (std::is_same_v<T, float>)
    use().attention_float(a, threads());
  else
    use().attention_bf16(a, threads());
}

std::tuple<Tensor, Tensor, Tensor> paged_attention(const Tensor& q, const Tensor& keys, const Tensor& values, const Tensor& table,
                                                   const Tensor& context, double scale, const OptionalTensor& keep,
                                                   int64_t window) {
  check_float(q, "q");
  TORCH_CHECK_VALUE(q.dim() == 3 && keys.dim() == 4 && q.size(2) == keys.size(3) && keys.size(2) > 0 &&
                        q.size(1) % keys.size(2) == 0,
                    "q must be [rows, heads, d] with d and a multiple of kv_heads as in k_cache, got ", q.sizes(), " and ",
                    keys.sizes());
  const int64_t rows = q.size(0), heads = q.size(1), kv_heads = keys.size(2);
  check(q, "q", q.scalar_type(), q.sizes());
  TORCH_CHECK_VALUE(table.dim() == 2, "block_table must be [rows, max_blocks], got ", table.sizes());
  check(table, "block_table", at::kInt, {rows, table.size(1)});
  check(context, "context_tokens", at::kInt, {rows});
  if (keep) check(*keep, "keep", at::kBool, {rows, kv_heads, table.size(1)});
  Tensor out = at::empty_like(q), lse = at::empty({rows, heads}, q.options().dtype(at::kFloat));
  Tensor mass = at::zeros({rows, heads, table.size(1)}, lse.options());
  for (int64_t r = 0; r < rows; ++r) check_table(table, r, ptr<int32_t>(context)[r], keys.size(1), keys.size(0));
  if (q.scalar_type() == at::kFloat)
    run_attention<float>(q, keys, values, table, context, scale, keep, window, out, lse, mass);
  else
    run_attention<bf16>(q, keys, values, table, context, scale, keep, window, out, lse, mass);
  if (keep)
    for (int64_t i = 0; i < rows * heads; ++i)
      TORCH_CHECK_VALUE(ptr<int32_t>(context)[i / heads] == 0 || ptr<float>(lse)[i] != -INFINITY,
                        "keep drops every block of a KV head in row ", i / heads, "; keep at least the block of the newest token");
  return {out, lse, mass};
}

void kv_write(const Tensor& k, const Tensor& v, const Tensor& keys, const Tensor& values, const Tensor& slot) {
  TORCH_CHECK_VALUE(keys.dim() == 4 && k.dim() == 3, "k must be [tokens, kv_heads, d] and k_cache 4-dimensional");
  const int64_t tokens = k.size(0), heads = keys.size(2), d = keys.size(3), slots = keys.size(0) * keys.size(1);
  check(keys, "k_cache", keys.scalar_type(), keys.sizes());
  check(values, "v_cache", keys.scalar_type(), keys.sizes());
  check(slot, "slot_index", at::kLong, {tokens});
  for (const Tensor& t : {k, v})
    TORCH_CHECK_VALUE(t.sizes() == at::IntArrayRef({tokens, heads, d}) && t.scalar_type() == keys.scalar_type() &&
                          t.device().is_cpu() && t.stride(2) == 1 && t.stride(1) == d,
                      "k and v must be [", tokens, ", ", heads, ", ", d, "] with contiguous heads and the cache's dtype, got ",
                      t.sizes(), " ", t.scalar_type());
  const int64_t* at = ptr<int64_t>(slot);
  for (int64_t t = 0; t < tokens; ++t)
    TORCH_CHECK_VALUE(at[t] >= 0 && at[t] < slots, "slot_index must be in [0, num_blocks * block_size) = [0, ", slots, "), got ", at[t]);
  const size_t bytes = size_t(heads * d) * keys.element_size();
  for (int64_t t = 0; t < tokens; ++t) {
    std::memcpy(ptr<char>(keys) + size_t(at[t]) * bytes, ptr<char>(k) + size_t(t * k.stride(0)) * k.element_size(), bytes);
    std::memcpy(ptr<char>(values) + size_t(at[t]) * bytes, ptr<char>(v) + size_t(t * v.stride(0)) * v.element_size(), bytes);
  }
}

Tensor pack(const Tensor& weight) {
  TORCH_CHECK_VALUE(weight.dim() == 2, "weight must be [out, in], got ", weight.sizes());
  check(weight, "weight", at::kBFloat16, weight.sizes());
  const int64_t n = weight.size(0), k = weight.size(1);
  Tensor packed = at::empty({(n + 47) / 48, (k + 31) / 32, 3, 16, 16, 2}, weight.options());
  workbench_cpu::pack(ptr<bf16>(weight), n, k, ptr<bf16>(packed));
  return packed;
}

workbench_cpu::PackedWeight packed_view(const Tensor& packed, int64_t n, int64_t k, const char* name) {
  check(packed, name, at::kBFloat16, {(n + 47) / 48, (k + 31) / 32, 3, 16, 16, 2});
  return {n, k, packed.size(1) * 32, packed.size(0), ptr<bf16>(packed)};
}

Tensor linear(const Tensor& x, const Tensor& packed, int64_t n, const OptionalTensor& bias) {
  const int64_t k = x.size(-1), rows = k ? x.numel() / k : 0;
  check(x, "x", at::kBFloat16, x.sizes());
  const auto weight = packed_view(packed, n, k, "packed weight");
  if (bias) check(*bias, "bias", at::kFloat, {n});
  auto shape = x.sizes().vec();
  shape.back() = n;
  Tensor y = at::empty(shape, x.options());
  use().linear_bf16(ptr<bf16>(x), rows, weight, bias ? ptr<float>(*bias) : nullptr, ptr<bf16>(y), threads());
  return y;
}

// Fields in the order of LogitStats; per-row options may be None.
std::vector<Tensor> logit_stats(const Tensor& logits, const Tensor& temperature, const Tensor& request, const Tensor& token,
                                const OptionalTensor& target, const OptionalTensor& min_p, const OptionalTensor& top_h,
                                const OptionalTensor& mu, double t_min, double t_max, double low, double high, double tolerance,
                                int64_t iterations, double entropy_max, uint64_t seed, uint32_t stream, bool gumbel) {
  TORCH_CHECK_VALUE(logits.dim() == 2 && logits.size(1) >= 1, "logits must be [rows, n] with n >= 1, got ", logits.sizes());
  const int64_t rows = logits.size(0);
  check(logits, "logits", at::kFloat, logits.sizes());
  check(temperature, "temperature", at::kFloat, {rows});
  check(request, "request_id", at::kLong, {rows});
  check(token, "token_index", at::kLong, {rows});
  const auto optional = [&](const OptionalTensor& t, const char* name) -> const float* {
    if (!t) return nullptr;
    check(*t, name, at::kFloat, {rows});
    return ptr<float>(*t);
  };
  Tensor floats = at::empty({8, rows}, logits.options()), ids = at::empty({rows}, request.options());
  Tensor applied = at::empty({rows}, logits.options());
  workbench_cpu::StatsArgs a{};
  a.logits = ptr<float>(logits), a.rows = rows, a.n = logits.size(1);
  a.temperature = ptr<float>(temperature);
  a.target = optional(target, "target_entropy_nats"), a.min_p = optional(min_p, "min_p");
  a.top_h = optional(top_h, "top_h"), a.mu = optional(mu, "mirostat_mu_nats");
  a.temperature_min = float(t_min), a.temperature_max = float(t_max);
  a.bracket_low = float(low), a.bracket_high = float(high), a.tolerance = float(tolerance);
  a.solve_iterations = int(iterations), a.entropy_max = float(entropy_max);
  a.seed = seed, a.stream = stream, a.gumbel = gumbel;
  a.request_id = ptr<int64_t>(request), a.token_index = ptr<int64_t>(token);
  a.floats = ptr<float>(floats), a.token_id = ptr<int64_t>(ids), a.temperature_applied = ptr<float>(applied);
  use().logit_stats(a, threads());
  std::vector<Tensor> fields = floats.unbind(0);
  fields.insert(fields.begin() + 6, ids);
  fields.push_back(applied);
  return fields;
}

// A decoder whose weights are packed once; `step` is one forward pass. Holds references to every tensor it reads.
class DecoderStep {
 public:
  DecoderStep(const Tensor& embedding, const Tensor& final_norm, const Tensor& head, const Tensor& cos, const Tensor& sin,
              int64_t heads, int64_t intermediate, double eps, double scale)
      : embedding_(embedding), final_norm_(final_norm), head_(head), cos_(cos), sin_(sin), heads_(heads) {
    TORCH_CHECK_VALUE(embedding.dim() == 2, "embedding must be [vocab, hidden], got ", embedding.sizes());
    check(embedding, "embedding", at::kBFloat16, embedding.sizes());
    base_.hidden = embedding.size(1), base_.heads = heads, base_.intermediate = intermediate;
    base_.eps = float(eps), base_.scale = float(scale);
    check(final_norm, "final_norm", at::kBFloat16, {base_.hidden});
    check(cos, "cos", at::kFloat, cos.sizes());
    check(sin, "sin", at::kFloat, cos.sizes());
    base_.head = packed_view(head, embedding.size(0), base_.hidden, "head");
  }

  void add_layer(const Tensor& input_norm, const Tensor& qkv, const OptionalTensor& qkv_bias, const OptionalTensor& q_norm,
                 const OptionalTensor& k_norm, const Tensor& output, const Tensor& post_norm, const Tensor& gate_up,
                 const Tensor& down, int64_t kv_heads, int64_t window) {
    const int64_t hidden = base_.hidden, d = cos_.size(1) * 2, width = (heads_ + 2 * kv_heads) * d;
    workbench_cpu::StepLayer layer{};
    check(input_norm, "input_norm", at::kBFloat16, {hidden});
    check(post_norm, "post_norm", at::kBFloat16, {hidden});
    layer.input_norm = ptr<bf16>(input_norm), layer.post_norm = ptr<bf16>(post_norm);
    for (const auto* norm : {&q_norm, &k_norm})
      if (*norm) check(**norm, "q_norm and k_norm", at::kBFloat16, {d});
    layer.q_norm = q_norm ? ptr<bf16>(*q_norm) : nullptr, layer.k_norm = k_norm ? ptr<bf16>(*k_norm) : nullptr;
    if (qkv_bias) check(*qkv_bias, "qkv_bias", at::kFloat, {width});
    layer.qkv_bias = qkv_bias ? ptr<float>(*qkv_bias) : nullptr;
    layer.qkv = packed_view(qkv, width, hidden, "qkv");
    layer.output = packed_view(output, hidden, heads_ * d, "output");
    layer.gate_up = packed_view(gate_up, (base_.intermediate + 23) / 24 * 48, hidden, "gate_up");
    layer.down = packed_view(down, hidden, base_.intermediate, "down");
    layer.window = window;
    kv_heads_ = kv_heads;
    layers_.push_back(layer);
    for (const Tensor& t : {input_norm, qkv, output, post_norm, gate_up, down}) held_.push_back(t);
    for (const auto* t : {&qkv_bias, &q_norm, &k_norm})
      if (*t) held_.push_back(**t);
  }

  // Returns (logits [num_logits, vocab], mass [tokens, kv_heads, max_blocks] or empty, dropped [tokens, kv_heads] or empty).
  std::tuple<Tensor, Tensor, Tensor> step(const Tensor& token_id, const Tensor& position, const Tensor& row, const Tensor& table,
                                          const Tensor& logit_token, const std::vector<Tensor>& keys,
                                          const std::vector<Tensor>& values, const OptionalTensor& keep,
                                          const OptionalTensor& measured, bool measure_dropped) {
    const int64_t tokens = token_id.size(0), rows = table.size(0), max_blocks = table.size(1), vocab = embedding_.size(0);
    check(token_id, "token_ids", at::kLong, {tokens});
    check(position, "positions", at::kLong, {tokens});
    check(row, "row", at::kInt, {tokens});
    check(table, "block_table", at::kInt, {rows, max_blocks});
    check(logit_token, "logit_rows", at::kLong, {logit_token.size(0)});
    TORCH_CHECK_VALUE(tokens > 0 && !layers_.empty(), "a step needs at least one token and one layer");
    TORCH_CHECK_VALUE(logit_token.size(0) <= tokens, "at most one row of logits per token");
    TORCH_CHECK_VALUE(keys.size() == layers_.size() && values.size() == layers_.size(), "one key and value cache per layer (",
                      layers_.size(), "), got ", keys.size());
    const int64_t d = cos_.size(1) * 2;
    for (size_t i = 0; i < layers_.size(); ++i) {
      layers_[i].cache = cache_view<bf16>(keys[i], values[i], at::kBFloat16);
      TORCH_CHECK_VALUE(keys[i].sizes() == keys[0].sizes() && keys[i].size(2) == kv_heads_ && keys[i].size(3) == d,
                        "every cache must be [num_blocks, block_size, ", kv_heads_, ", ", d, "], got ", keys[i].sizes());
    }
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t id = ptr<int64_t>(token_id)[t], at = ptr<int64_t>(position)[t], r = ptr<int32_t>(row)[t];
      TORCH_CHECK_VALUE(id >= 0 && id < vocab, "token_ids must be in [0, ", vocab, "), got ", id);
      TORCH_CHECK_VALUE(at >= 0 && at < cos_.size(0), "positions must be in [0, ", cos_.size(0), "), got ", at);
      TORCH_CHECK_VALUE(r >= 0 && r < rows, "row must be in [0, ", rows, "), got ", r);
      check_table(table, r, at + 1, keys[0].size(1), keys[0].size(0));
    }
    for (int64_t i = 0; i < logit_token.size(0); ++i)
      TORCH_CHECK_VALUE(ptr<int64_t>(logit_token)[i] >= 0 && ptr<int64_t>(logit_token)[i] < tokens, "logit_rows must be in [0, ",
                        tokens, "), got ", ptr<int64_t>(logit_token)[i]);
    if (keep) check(*keep, "keep", at::kBool, {rows, kv_heads_, max_blocks});
    if (measured) check(*measured, "measured", at::kBool, {tokens});
    const auto options = cos_.options();
    Tensor logits = at::empty({logit_token.size(0), vocab}, options);
    Tensor mass = measured ? at::zeros({tokens, kv_heads_, max_blocks}, options) : Tensor();
    Tensor dropped = measured && keep && measure_dropped ? at::zeros({tokens, kv_heads_}, options) : Tensor();
    workbench_cpu::StepArgs a = base_;
    a.tokens = tokens, a.max_blocks = max_blocks;
    a.embedding = ptr<bf16>(embedding_), a.final_norm = ptr<bf16>(final_norm_);
    a.cos = ptr<float>(cos_), a.sin = ptr<float>(sin_);
    a.token_id = ptr<int64_t>(token_id), a.position = ptr<int64_t>(position), a.row = ptr<int32_t>(row);
    a.block_table = ptr<int32_t>(table);
    a.layers = layers_.data(), a.num_layers = int64_t(layers_.size());
    a.logit_token = ptr<int64_t>(logit_token), a.num_logits = logit_token.size(0);
    a.keep = keep ? ptr<uint8_t>(*keep) : nullptr;
    a.measured = measured ? ptr<uint8_t>(*measured) : nullptr;
    a.mass_by_head = measured ? ptr<float>(mass) : nullptr;
    a.dropped_by_head = dropped.defined() ? ptr<float>(dropped) : nullptr;
    a.logits = ptr<float>(logits);
    {
      pybind11::gil_scoped_release unlocked;
      use().decoder_step(a, threads());
    }
    return {logits, mass, dropped};
  }

 private:
  Tensor embedding_, final_norm_, head_, cos_, sin_;
  int64_t heads_, kv_heads_ = 0;
  workbench_cpu::StepArgs base_{};
  std::vector<workbench_cpu::StepLayer> layers_;
  std::vector<Tensor> held_;
};

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  set_instruction_set(instruction_sets().front());
  m.def("instruction_sets", &instruction_sets);
  m.def("instruction_set", [] { return instruction_sets()[chosen]; });
  m.def("set_instruction_set", &set_instruction_set);
  m.def("rms_norm", &rms_norm);
  m.def("rotary", &rotary);
  m.def("swiglu", &swiglu);
  m.def("paged_attention", &paged_attention);
  m.def("kv_write", &kv_write);
  m.def("pack", &pack);
  m.def("linear", &linear);
  m.def("logit_stats", &logit_stats);
  pybind11::class_<DecoderStep>(m, "DecoderStep")
      .def(pybind11::init<const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, int64_t, int64_t, double, double>())
      .def("add_layer", &DecoderStep::add_layer)
      .def("step", &DecoderStep::step);
}
