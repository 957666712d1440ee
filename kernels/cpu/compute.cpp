// The same bodies compiled once per instruction set; the best one this CPU runs is chosen when the library is loaded.
// No -march flag and no fast-math: the file builds anywhere, and subnormals survive.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "compute.h"
#if defined(__x86_64__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define INLINE_MEMBER __attribute__((always_inline)) inline
#pragma GCC diagnostic ignored "-Wpsabi"

namespace workbench_cpu {

bool amx_enabled = false;

// Whether the set has `dpbf16` and tiles; GCC does not define its own macros after a target pragma in C++.
#define HAS_BF16_PRODUCTS 0

namespace portable {
#include "body.h"
}
#undef INLINE

#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
namespace avx2 {
#include "body.h"
}
#undef INLINE
#pragma GCC pop_options

// The tile instructions are only used where `amx_enabled` says so; the rest of this set is AVX-512 with bf16 products.
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4,avx512bf16,amx-tile,amx-bf16,prefer-vector-width=512")
#undef HAS_BF16_PRODUCTS
#define HAS_BF16_PRODUCTS 1
namespace avx512bf16 {
#include "body.h"
}
#undef INLINE
#pragma GCC pop_options

// Linux hands out the tile registers on request; a refusal leaves the next best set.
static bool amx_granted() {
  unsigned a, b, c, d;
  __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(7), "c"(0));
  const bool has_tiles = (d >> 24 & 1u) && (d >> 22 & 1u);
  constexpr long REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;
  return has_tiles && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#endif

const std::vector<InstructionSet>& instruction_sets() {
  static const std::vector<InstructionSet> best_first = [] {
    std::vector<InstructionSet> found;
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512bf16");
    if (v4 && amx_granted()) found.push_back({"amx", true, avx512bf16::functions()});
    if (v4) found.push_back({"avx512bf16", false, avx512bf16::functions()});
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"))
      found.push_back({"avx2", false, avx2::functions()});
#endif
    found.push_back({"portable", false, portable::functions()});
    return found;
  }();
  return best_first;
}

void pack(const bf16* weight, int64_t n, int64_t k, bf16* packed) {
  const int64_t panels = (n + 47) / 48, k_padded = (k + 31) / 32 * 32;
#pragma omp parallel for schedule(static)
  for (int64_t p = 0; p < panels; ++p)
    for (int64_t i = 0; i < k_padded * 48; ++i) {
      const int64_t block = i / 1536, j = i % 1536 / 512, pair = i % 512 / 32, column = i % 32 / 2;
      const int64_t row = p * 48 + j * 16 + column, from = block * 32 + pair * 2 + i % 2;
      packed[p * k_padded * 48 + i] = row < n && from < k ? weight[row * k + from] : bf16{0};
    }
}

}  // namespace workbench_cpu
