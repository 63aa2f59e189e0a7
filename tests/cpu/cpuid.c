/* Preloaded by __main__.py: answers CPUID in libraries in which it was replaced by ud2, without the
 * features that the processor named by CPUID_AS lacks: "avx2" or "avx512". */
#define _GNU_SOURCE
#include <cpuid.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

/* Bits of leaf 7, subleaf 0. */
enum {
  WIDE_B = 1u << 16 | 1u << 17 | 1u << 21 | 1u << 28 | 1u << 30 | 1u << 31, /* AVX-512 F to VL */
  WIDE_C = 1u << 1 | 1u << 6 | 1u << 12 | 1u << 14, /* VBMI, VBMI2, BITALG, VPOPCNTDQ */
  WIDE_D = 1u << 2 | 1u << 3 | 1u << 8,             /* 4VNNIW, 4FMAPS, VP2INTERSECT */
  VNNI_C = 1u << 11,
  AMX_D = 1u << 22 | 1u << 23 | 1u << 24 | 1u << 25 /* and AVX512-FP16 */
};
/* Of leaf 7, subleaf 1: AVX-VNNI, AVX512-BF16; AVX-VNNI-INT8, AVX-NE-CONVERT, AVX-VNNI-INT16. */
enum { MORE_A = 1u << 4 | 1u << 5, MORE_D = 1u << 4 | 1u << 5 | 1u << 10 };

static int narrow, active;
static int (*own)(int, const struct sigaction *, struct sigaction *);

static void answer(int number, siginfo_t *info, void *context) {
  (void)info;
  greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
  if (memcmp((const void *)r[REG_RIP], "\x0f\x0b", 2)) { /* another: ends the process, as usual */
    signal(number, SIG_DFL);
    return;
  }
  const uint32_t leaf = (uint32_t)r[REG_RAX], subleaf = (uint32_t)r[REG_RCX];
  uint32_t a, b, c, d;
  __cpuid_count(leaf, subleaf, a, b, c, d);
  if (leaf == 7 && subleaf == 0) {
    c &= ~(uint32_t)VNNI_C, d &= ~(uint32_t)AMX_D;
    if (narrow) b &= ~(uint32_t)WIDE_B, c &= ~(uint32_t)WIDE_C, d &= ~(uint32_t)WIDE_D;
  } else if (leaf == 7 && subleaf == 1) {
    a &= ~(uint32_t)MORE_A, d &= ~(uint32_t)MORE_D;
  }
  r[REG_RAX] = a, r[REG_RBX] = b, r[REG_RCX] = c, r[REG_RDX] = d, r[REG_RIP] += 2;
}

/* Python's faulthandler would take the signal. */
int sigaction(int number, const struct sigaction *new, struct sigaction *old) {
  if (active && number == SIGILL) {
    if (old) memset(old, 0, sizeof *old);
    return 0;
  }
  if (!own)
    own = (int (*)(int, const struct sigaction *, struct sigaction *))dlsym(RTLD_NEXT, "sigaction");
  return own(number, new, old);
}

__attribute__((constructor)) static void begin(void) {
  const char *as = getenv("CPUID_AS");
  struct sigaction action = {.sa_sigaction = answer,
                             .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
  if (!as || sigaction(SIGILL, &action, NULL)) return;
  narrow = !strcmp(as, "avx2"), active = 1;
}
