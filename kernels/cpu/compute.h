// What the compute code takes and offers. Plain pointers and sizes: no torch here, so that it compiles in seconds.
#pragma once
#include <cstdint>
#include <vector>

namespace workbench_cpu {

struct bf16 {
  uint16_t bits;
};

template <class T>
struct CacheView {  // one layer's keys and values, [num_blocks, block_size, kv_heads, head_size]
  T* keys;
  T* values;
  int64_t num_blocks, block_size, kv_heads, head_size;
};

template <class T>
struct AttentionArgs {
  const T* q;  // [rows, heads, head_size]
  CacheView<T> cache;
  const int32_t* block_table;  // [rows, max_blocks]
  const int32_t* context_tokens;  // [rows]
  int64_t rows, heads, max_blocks, window;  // window 0: none
  float scale;
  const uint8_t* keep;  // [rows, kv_heads, max_blocks] or null
  T* out;  // [rows, heads, head_size]
  float* log_sum_exp;  // [rows, heads]
  float* mass;  // [rows, heads, max_blocks], zeroed by the caller
};

struct PackedWeight {  // see linear.h
  int64_t n, k, k_padded, panels;
  const bf16* data;
};

struct StatsArgs {
  const float* logits;  // [rows, n]
  int64_t rows, n;
  const float *temperature, *target, *min_p, *top_h, *mu;  // [rows]; all but temperature may be null
  float temperature_min, temperature_max, bracket_low, bracket_high, tolerance, entropy_max;
  int solve_iterations;
  uint64_t seed;
  uint32_t stream;
  const int64_t *request_id, *token_index;
  bool gumbel;
  float* floats;  // [8][rows], in the order of LogitStats without token_id and temperature_applied
  int64_t* token_id;
  float* temperature_applied;
};

struct StepLayer {
  const bf16 *input_norm, *post_norm;  // [hidden]
  const bf16 *q_norm, *k_norm;         // [head_size] or null
  PackedWeight qkv, output, gate_up, down;  // gate_up in interleaved rows, see decoder_step in step.h
  const float* qkv_bias;                   // [(heads + 2 kv_heads) head_size] or null
  CacheView<bf16> cache;
  int64_t window;  // 0: none
};

struct StepArgs {
  int64_t tokens, hidden, heads, intermediate, max_blocks;
  float eps, scale;
  const bf16* embedding;   // [vocab, hidden]
  const int64_t* token_id;  // [tokens]
  const int64_t* position;  // [tokens]
  const int32_t* row;       // [tokens] row of block_table; a later token of a row sees the earlier ones
  const int32_t* block_table;  // [rows, max_blocks]
  const float *cos, *sin;      // [positions, head_size / 2]
  const StepLayer* layers;
  int64_t num_layers;
  const bf16* final_norm;
  PackedWeight head;
  const int64_t* logit_token;  // [num_logits] tokens whose logits are wanted
  int64_t num_logits;
  const uint8_t* keep;  // [rows, kv_heads, max_blocks] or null
  const uint8_t* measured;   // [tokens] the token's attention mass is wanted, or null for none
  float* mass_by_head;       // [tokens, kv_heads, max_blocks] summed over layers and the group's heads; zeroed
  float* dropped_by_head;    // [tokens, kv_heads] likewise, the mass a keep-list dropped; null: not measured
  float* logits;            // [num_logits, vocab]
};

struct Kernels {
  void (*rms_norm_float)(const float*, const float*, const float*, float, int64_t, int64_t, float*, float*, int);
  void (*rms_norm_bf16)(const bf16*, const bf16*, const bf16*, float, int64_t, int64_t, bf16*, bf16*, int);
  void (*rotary_float)(const float*, int64_t, const float*, int64_t, const float*, const float*, int64_t, int64_t, int64_t,
                       int64_t, float*, float*, int);
  void (*rotary_bf16)(const bf16*, int64_t, const bf16*, int64_t, const float*, const float*, int64_t, int64_t, int64_t,
                      int64_t, bf16*, bf16*, int);
  void (*swiglu_float)(const float*, int64_t, int64_t, float*, int);
  void (*swiglu_bf16)(const bf16*, int64_t, int64_t, bf16*, int);
  void (*attention_float)(const AttentionArgs<float>&, int);
  void (*attention_bf16)(const AttentionArgs<bf16>&, int);
  void (*linear_float)(const float*, int64_t, const PackedWeight&, const float*, float*, int);
  void (*linear_bf16)(const bf16*, int64_t, const PackedWeight&, const float*, bf16*, int);
  void (*logit_stats)(const StatsArgs&, int);
  void (*decoder_step)(const StepArgs&, int);
};

struct InstructionSet {
  const char* name;
  bool amx;  // products run on tiles
  Kernels kernels;
};

// What this machine can run, best first.
const std::vector<InstructionSet>& instruction_sets();

// Whether products may use tiles; set together with the instruction set in use.
extern bool amx_enabled;

// Packs `weight` [n, k] (row stride k) into `packed`, which holds panels * k_padded * 48 values.
void pack(const bf16* weight, int64_t n, int64_t k, bf16* packed);

}  // namespace workbench_cpu
