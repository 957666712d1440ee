// Everything that is compiled once per instruction set.
#include "simd.h"
//
#include "layers.h"
//
#include "block_products.h"
//
#include "attention.h"
//
#include "ahead.h"
//
#include "linear.h"
#include "logit_stats.h"
#include "step.h"

static Kernels functions() {
  return {rms_norm_rows<float>,
          rms_norm_rows<bf16>,
          rotary_rows<float>,
          rotary_rows<bf16>,
          swiglu_rows<float>,
          swiglu_rows<bf16>,
          paged_attention<float>,
          paged_attention<bf16>,
          linear<float>,
          linear<bf16>,
          logit_stats,
          decoder_step};
}
