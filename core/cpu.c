/* ew_cpu_level: which of the libraries for x86-64 this machine can run. The library for the lowest
 * level is loaded first and asked (python/edgewise/host/engine/native.py). */
#include "vm.h"

#if defined(__x86_64__)
#  include <cpuid.h>

/* Whether all bits of `mask` are set. */
static bool has(uint32_t bits, uint32_t mask) { return (bits & mask) == mask; }

/* XCR0: the register states that the operating system saves when it switches threads. */
static uint32_t saved_states(void) {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

EW_API(ew_cpu_level) int32_t ew_cpu_level(void) {
  uint32_t a, b, c, d, extended_c;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return 1;
  const uint32_t first = bit_FMA | bit_SSE4_2 | bit_MOVBE | bit_POPCNT | bit_AVX | bit_F16C;
  if (!has(c, first | bit_OSXSAVE) || !has(saved_states(), 0x6 /* SSE, AVX */)) return 1;
  if (!__get_cpuid(0x80000001, &a, &b, &extended_c, &d) || !has(extended_c, bit_LZCNT)) return 1;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !has(b, bit_AVX2 | bit_BMI | bit_BMI2)) return 1;
  const uint32_t wide = bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL;
  return has(b, wide) && has(saved_states(), 0xe6 /* and AVX-512 */) ? 4 : 3;
}
#endif
