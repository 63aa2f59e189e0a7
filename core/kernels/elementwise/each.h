/* Shared by the elementwise kernels: element types in memory, and a driver that turns strided
 * operands of up to six dimensions into contiguous rows. */
#ifndef EDGEWISE_EACH_H
#define EDGEWISE_EACH_H
#include "kernel.h"
#include "simd.h"

/* Elements in memory: any address, any declared type. */
typedef float m_f32 EW_MEMORY;
typedef double m_f64 EW_MEMORY;
typedef uint8_t m_u8 EW_MEMORY;
typedef int8_t m_i8 EW_MEMORY;
typedef uint16_t m_u16 EW_MEMORY;
typedef int16_t m_i16 EW_MEMORY;
typedef uint32_t m_u32 EW_MEMORY;
typedef int32_t m_i32 EW_MEMORY;
typedef uint64_t m_u64 EW_MEMORY;
typedef int64_t m_i64 EW_MEMORY;

/* Placed before a loop whose output may be exactly one of its inputs, which does not prevent
 * vectorization. */
#if defined(__clang__)
#  define EW_EACH _Pragma("clang loop vectorize(assume_safety) interleave_count(1) unroll(disable)")
/* for rare code: small rather than fast */
#  define EW_PLAIN _Pragma("clang loop vectorize(disable) unroll(disable)")
#else
#  define EW_EACH _Pragma("GCC ivdep")
#  define EW_PLAIN
#endif
#define EW_PLAIN_FOR(...) EW_PLAIN for (__VA_ARGS__)

/* Computes n contiguous results from n contiguous elements of each input. `job` is the kernel's own
 * data. */
typedef void (*ew_row)(const void *job, int32_t n, const void *const *in, void *out);
typedef struct {
  const void *data;
  const int32_t *strides;
  int32_t size;
} ew_strided;

/* A row function for rows along which some inputs are a single number: in[k] points to that one
 * element if bit k of `single` is set. */
typedef void (*ew_row_of_numbers)(const void *job, int32_t n, const void *const *in, void *out,
                                  uint32_t single);

/* Calls `row` until all dims[6] elements are computed, in parallel if the tensor is large enough.
 * Operands that are not contiguous along a row are copied through small blocks. Strides are in
 * elements; n_in <= 3. */
void ew_each(ew_context *, const int32_t *dims, int n_in, const ew_strided *in, ew_strided out,
             ew_row row, const void *job);

/* The same with a function for rows that are at least LONG_ROW long, which spares copying of inputs
 * with stride 0. */
void ew_each_with_numbers(ew_context *, const int32_t *dims, int n_in, const ew_strided *in,
                          ew_strided out, ew_row row, ew_row_of_numbers numbers, const void *job);

/* Runs `row`, which processes whole vectors only, on n floats of each of n_in inputs. The
 * incomplete last vector is computed in a temporary buffer. */
void ew_whole_vectors(ew_row row, const void *job, int32_t n, int n_in, const void *const *in,
                      void *out);

static inline int32_t ew_bytes_of(int32_t type) { /* `type` has been checked by the loader */
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
  default: return type >= EW_E4M3FN ? 1 : 8; /* sub-byte types are unpacked */
  }
}

/* Element i of an int32 or int64 operand as an index, counted from the end if negative; -1 if it is
 * not within [-n, n). */
static inline int64_t ew_index(ew_context *c, const void *data, int32_t type, int64_t i,
                               int64_t n) {
  int64_t v = type == EW_I32 ? ((const m_i32 *)data)[i] : ((const m_i64 *)data)[i],
          at = v < 0 ? v + n : v;
  if (at >= 0 && at < n) return at;
  __atomic_store_n(&c->detail, v, __ATOMIC_RELAXED);
  return -1;
}

/* Number of tasks into which to split `amount` units of work, such that each has at least `least`
 * units; at most `pieces`. */
static inline int32_t ew_tasks(const ew_context *c, int64_t amount, int64_t least, int64_t pieces) {
  int64_t n = amount / least, most = (int64_t)ew_parallel_width(c) * 4;
  n = n < most ? n : most;
  n = n < pieces ? n : pieces;
  return ew_parallel_width(c) == 1 || n < 1 ? 1 : (int32_t)n;
}
#endif
