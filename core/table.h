/* The kernel table as the loader sees it, and the arithmetic of the generated checks. */
#ifndef EDGEWISE_TABLE_H
#define EDGEWISE_TABLE_H
#include "kernel.h"
#include <stdlib.h>

/* Elements [lo, hi) relative to an operand's offset that a kernel may touch, `size` bytes each. */
typedef struct {
  int64_t size, lo, hi;
} ew_reach;

#define EW_CHECK __attribute__((noinline, unused)) /* called some hundred times: small beats fast */

enum { EW_CHECKED = -1, EW_CHECK_OVERFLOW = -2 };

typedef struct {
  uint16_t param_bytes, n_operands, outputs, optional; /* the last two: one bit per operand */
  /* of an output: the operands that may be the same memory */
  uint16_t inplace[EW_MAX_OPERANDS];
} ew_kernel;

extern const ew_kernel ew_kernels[EW_KERNEL_COUNT];

/* check: EW_CHECKED, EW_CHECK_OVERFLOW (a reach cannot be computed) or the index of the rule that
 * does not hold: the declared rules first, then "not negative" of each name in `empty`. *empty: the
 * step touches nothing and `reach` is not filled in. */
typedef struct {
  int32_t (*run)(ew_context *, const void *params, void *const *operand);
  int32_t (*check)(const void *params, ew_reach *reach, bool *empty);
} ew_functions;

/* The only place that names the kernels' functions, and not constant, so that no compiler looks
 * inside: edgewise.shake finds it in a .wasm by its mark and takes kernels out by putting NULL
 * here, and values of their parameters by clearing bits. Plans that want one of those are
 * refused. */
typedef struct {
  char mark[16];
  uint32_t table_hash, count;
  ew_functions of[EW_KERNEL_COUNT];
  /* the values that a parameter may have: bits */
  struct {
    uint16_t kernel, word;
    uint64_t values;
  } __attribute__((packed)) variants[EW_VARIANT_COUNT];
} ew_kernel_code;

#define EW_CODE_MARK "EDGEWISE KERNELS"
extern ew_kernel_code ew_code;

/* Sizes are a bit below 2^31, so that kernels may count them in int32, several at a time, and round
 * them up. Without 64-bit addresses none is near it. */
enum { EW_LONGEST = INT32_MAX - 4095 };
#if UINTPTR_MAX > UINT32_MAX
#  define EW_TOO_LONG(size) ((size) > EW_LONGEST)
#else
#  define EW_TOO_LONG(size) false
#endif

static EW_CHECK int64_t ew_check_add(bool *bad, int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_add_overflow(a, b, &r)) *bad = true, r = 0;
  return r;
}
static EW_CHECK int64_t ew_check_sub(bool *bad, int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_sub_overflow(a, b, &r)) *bad = true, r = 0;
  return r;
}
static EW_CHECK int64_t ew_check_mul(bool *bad, int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_mul_overflow(a, b, &r)) *bad = true, r = 0;
  return r;
}
/* Python's // and %, for a divisor above 0 only */
static EW_CHECK int64_t ew_check_div(bool *bad, int64_t a, int64_t b) {
  if (b <= 0) return *bad = true, 0;
  return a / b - (a % b < 0);
}
static EW_CHECK int64_t ew_check_mod(bool *bad, int64_t a, int64_t b) {
  if (b <= 0) return *bad = true, 0;
  int64_t r = a % b;
  return r < 0 ? r + b : r;
}
static EW_CHECK int64_t ew_check_ceil_div(bool *bad, int64_t a, int64_t b) {
  if (b <= 0 || a < 0) return *bad = true, 0;
  return a / b + (a % b != 0);
}
static inline int64_t ew_check_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t ew_check_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* Spans of a strided operand: 1 + the sum of the positive ones, the sum of the negative ones. dims
 * are above 0 here. */
static EW_CHECK int64_t ew_check_hi(bool *bad, const int32_t *dims, const int32_t *strides) {
  int64_t r = 1;
  for (int i = 0; i < 6; i++)
    if (strides[i] > 0) r = ew_check_add(bad, r, (dims[i] - (int64_t)1) * strides[i]);
  return r;
}
static EW_CHECK int64_t ew_check_lo(bool *bad, const int32_t *dims, const int32_t *strides) {
  int64_t r = 0;
  for (int i = 0; i < 6; i++)
    if (strides[i] < 0) r = ew_check_add(bad, r, (dims[i] - (int64_t)1) * strides[i]);
  return r;
}
/* Whether no element of a strided operand is there twice, by a rule that all plans of the compiler
 * keep: each stride, the smallest first, is at least as large as what the dimensions before it
 * span. Dimensions of one do not count, and where one is 0 there is nothing. n <= 6. */
static EW_CHECK bool ew_check_distinct(int n, const int64_t *dims, const int64_t *strides) {
  int64_t span = 1, least = 0;
  for (int i = 0; i < n; i++)
    if (dims[i] < 1) return true;
  for (uint32_t left = (1u << n) - 1; left;) {
    int at = -1;
    for (int i = 0; i < n; i++)
      if (left >> i & 1 && (at < 0 || llabs(strides[i]) < least)) at = i, least = llabs(strides[i]);
    left &= ~(1u << at);
    if (dims[at] == 1) continue;
    /* the product: of two below 2^32 */
    if (least < span || __builtin_add_overflow(span, (dims[at] - 1) * least, &span)) return false;
  }
  return true;
}
static EW_CHECK bool ew_check_distinct_strides(const int32_t *dims, const int32_t *strides) {
  int64_t d[6], s[6];
  for (int i = 0; i < 6; i++) d[i] = dims[i], s[i] = strides[i];
  return ew_check_distinct(6, d, s);
}
/* Elements of a strided kernel: -1 if a dimension is negative or there are more than could ever be
 * computed, so that kernels may multiply freely. */
static EW_CHECK int64_t ew_check_volume(const int32_t *dims) {
  int64_t r = 1;
  for (int i = 0; i < 6; i++)
    if (dims[i] == 0) r = 0;
  for (int i = 0; i < 6; i++) {
    if (dims[i] < 0 || (dims[i] && r > (INT64_C(1) << 40) / dims[i])) return -1;
    r *= dims[i];
  }
  return r;
}
/* Of a size in three dimensions: 0 if one of them is below 1, or there are more than EW_LONGEST. */
static EW_CHECK __attribute__((pure)) int64_t ew_check_volume_of_3(const int32_t *size) {
  int64_t r = 1;
  for (int i = 0; i < 3; i++)
    if (size[i] < 1 || (r *= size[i]) > EW_LONGEST) return 0;
  return r;
}
static EW_CHECK int64_t ew_check_bytes_of(bool *bad, int64_t type) {
  switch (type) {
  case EW_U8:
  case EW_I8:
  case EW_BOOL: return 1;
  case EW_U16:
  case EW_I16:
  case EW_F16:
  case EW_BF16: return 2;
  case EW_F32:
  case EW_I32:
  case EW_U32: return 4;
  case EW_F64:
  case EW_I64:
  case EW_U64: return 8;
  default: return *bad = true, 1;
  }
}
/* Of kernels that know the types of a byte and less, too; those of less lie unpacked where this is
 * asked. */
static EW_CHECK int64_t ew_check_bytes_of_any(bool *bad, int64_t type) {
  return type >= EW_E4M3FN && type <= EW_E3M2 ? 1 : ew_check_bytes_of(bad, type);
}
#endif
