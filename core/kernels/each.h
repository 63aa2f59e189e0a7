/* What the elementwise kernels share: element types in memory, and a driver that turns any strided
 * operands into rows. */
#ifndef EDGEWISE_EACH_H
#define EDGEWISE_EACH_H
#include "../kernel.h"
#include "../simd.h"

/* Elements in memory, at any address, whatever they were written as. */
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

/* Before a loop whose output may be exactly one of its inputs, which does no harm to vectors. */
#if defined(__clang__)
#  define EW_EACH _Pragma("clang loop vectorize(assume_safety) interleave_count(1) unroll(disable)")
#  define EW_PLAIN _Pragma("clang loop vectorize(disable) unroll(disable)") /* rare: small code */
#else
#  define EW_EACH _Pragma("GCC ivdep")
#  define EW_PLAIN
#endif
#define EW_PLAIN_FOR(...) EW_PLAIN for (__VA_ARGS__)

/* n results from n contiguous elements of each input. `job` is the kernel's own. */
typedef void (*ew_row)(const void *job, int32_t n, const void *const *in, void *out);
typedef struct {
  const void *data;
  const int32_t *strides;
  int32_t size;
} ew_strided;

/* Calls `row` until all of dims[6] is done, in parallel where it is worth it. Operands that are not
 * contiguous where `row` wants them are brought together in small blocks first. n_in <= 3. */
void ew_each(ew_context *, const int32_t *dims, int n_in, const ew_strided *in, ew_strided out,
             ew_row row, const void *job);

/* `row`, which takes whole vectors, for n floats from each of n_in inputs: the last, incomplete
 * vector goes through it in a place of its own. */
void ew_whole_vectors(ew_row row, const void *job, int32_t n, int n_in, const void *const *in,
                      void *out);

static inline int32_t ew_bytes_of(int32_t type) { /* of a type that the loader has let through */
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
  default: return type >= EW_E4M3FN ? 1 : 8; /* those of less than a byte: unpacked */
  }
}

/* Index i of an int32 or int64 operand, counted from the end where negative; -1 if it is not within
 * [-n, n). */
static inline int64_t ew_index(ew_context *c, const void *data, int32_t type, int64_t i,
                               int64_t n) {
  int64_t v = type == EW_I32 ? ((const m_i32 *)data)[i] : ((const m_i64 *)data)[i],
          at = v < 0 ? v + n : v;
  if (at >= 0 && at < n) return at;
  __atomic_store_n(&c->detail, v, __ATOMIC_RELAXED);
  return -1;
}

/* How many tasks to split `amount` of work into, none of them below `least`. */
static inline int32_t ew_tasks(const ew_context *c, int64_t amount, int64_t least, int64_t pieces) {
  int64_t n = amount / least, most = (int64_t)ew_parallel_width(c) * 4;
  n = n < most ? n : most;
  n = n < pieces ? n : pieces;
  return ew_parallel_width(c) == 1 || n < 1 ? 1 : (int32_t)n;
}
#endif
