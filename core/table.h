/* The kernel table as the loader sees it, and the arithmetic used by the generated checks
 * (gen/kernels.c). */
#ifndef EDGEWISE_TABLE_H
#define EDGEWISE_TABLE_H
#include "kernel.h"
#include <stdlib.h>

/* Reach of an operand: the elements [lo, hi), relative to its offset, that the kernel may access;
 * `size` is bytes per element. */
typedef struct {
  int64_t size, lo, hi;
} ew_reach;

/* called a few hundred times per load: small rather than fast */
#define EW_CHECK __attribute__((noinline, unused))

enum { EW_CHECKED = -1, EW_CHECK_OVERFLOW = -2 }; /* results of ew_functions.check */

typedef struct {
  uint16_t param_bytes, n_operands;
  uint16_t outputs, optional, pages; /* a bit per operand; pages: it finds it by ew_page */
  /* for each output, a bit mask of the inputs that may be the same memory */
  uint16_t inplace[EW_MAX_OPERANDS];
} ew_kernel;

extern const ew_kernel ew_kernels[EW_KERNEL_COUNT];

/* check returns EW_CHECKED, EW_CHECK_OVERFLOW (a reach cannot be computed), or the index of the
 * violated rule: first the declared rules, then "not negative" for each name in `empty`. If *empty
 * is true, the step accesses no memory and `reach` is not filled in. */
typedef struct {
  int32_t (*run)(ew_context *, const void *params, void *const *operand);
  int32_t (*check)(const void *params, ew_reach *reach, bool *empty);
} ew_functions;

/* The only references to the kernel functions, and not constant, so that no compiler evaluates
 * them. edgewise.shake finds this struct in a .wasm file by its mark; it removes kernels by writing
 * NULL here, and parameter values by clearing bits. The loader rejects plans that need what was
 * removed. */
typedef struct {
  char mark[16];
  uint32_t table_hash, count;
  ew_functions of[EW_KERNEL_COUNT];
  /* supported values of a parameter, as a bit mask */
  struct {
    uint16_t kernel, word;
    uint64_t values;
  } __attribute__((packed)) variants[EW_VARIANT_COUNT];
} ew_kernel_code;

#define EW_CODE_MARK "EDGEWISE KERNELS"
extern ew_kernel_code ew_code;

/* Maximum number of elements or bytes of a size: slightly below 2^31, so that kernels can count in
 * int32, several elements at a time, and round up. Tensors in a 32-bit address space never come
 * close. */
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
/* Floor division and modulo as Python's // and %, for positive divisors only. */
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

/* Extent of a strided operand: 1 + the sum of its positive spans (hi), the sum of its negative
 * spans (lo). All dims are positive here. */
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
/* True if no two indices of a strided operand address the same element, decided by a sufficient
 * condition that all compiled plans satisfy: in ascending order, each stride is at least the span
 * of the dimensions before it. Dimensions of size 1 are ignored; a dimension of size 0 means no
 * elements. n <= 6. */
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
    /* the factors are below 2^32: the product does not overflow */
    if (least < span || __builtin_add_overflow(span, (dims[at] - 1) * least, &span)) return false;
  }
  return true;
}
static EW_CHECK bool ew_check_distinct_strides(const int32_t *dims, const int32_t *strides) {
  int64_t d[6], s[6];
  for (int i = 0; i < 6; i++) d[i] = dims[i], s[i] = strides[i];
  return ew_check_distinct(6, d, s);
}
/* Number of elements of a strided kernel; -1 if a dimension is negative or the number exceeds what
 * a kernel could ever compute. Kernels may multiply dimensions without overflow checks. */
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
/* Product of a three-dimensional size; 0 if a dimension is below 1 or the product exceeds
 * EW_LONGEST. */
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
/* The same for kernels that also support types of one byte and less. Sub-byte types are stored
 * unpacked, one byte each, wherever this is used. */
static EW_CHECK int64_t ew_check_bytes_of_any(bool *bad, int64_t type) {
  return type >= EW_E4M3FN && type <= EW_E3M2 ? 1 : ew_check_bytes_of(bad, type);
}
#endif
