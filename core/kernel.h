/* Interface of a kernel: parameters, operand addresses, and the means to run tasks in parallel. */
#ifndef EDGEWISE_KERNEL_H
#define EDGEWISE_KERNEL_H
#include "engine.h"
#include <stdbool.h>

enum {
  /* Element types. The values are those of ONNX's TensorProto.DataType. */
  EW_F32 = 1,
  EW_U8 = 2,
  EW_I8 = 3,
  EW_U16 = 4,
  EW_I16 = 5,
  EW_I32 = 6,
  EW_I64 = 7,
  EW_BOOL = 9,
  EW_F16 = 10,
  EW_F64 = 11,
  EW_U32 = 12,
  EW_U64 = 13,
  EW_BF16 = 16,
  EW_E4M3FN = 17,
  EW_E4M3FNUZ = 18,
  EW_E5M2 = 19,
  EW_E5M2FNUZ = 20,
  EW_U4 = 21,
  EW_I4 = 22,
  EW_E2M1 = 23,
  EW_E8M0 = 24,
  EW_U2 = 25,
  EW_I2 = 26,
  EW_E2M3 = 27,
  EW_E3M2 = 28
};

typedef struct {
  ew_engine *engine;
  int64_t detail; /* details of a failure, for ew_error.detail */
  /* Of kernels that decide which step is next: the counter of their loop, which they may change,
   * and the number of steps to skip after this one, negative to go back. */
  int64_t counter;
  int32_t skip;
  /* Of kernels whose weights may come in pages (ew_page): the number of the first page that they
   * have not finished with, in a step that goes on after it has waited for that page. */
  int32_t page;
  ew_plan *plan;    /* that the step belongs to, */
  const void *step; /* its ew_step */
} ew_context;

#include "gen/kernels.h"

/* Marks code for single parameter values, so that edgewise.shake can remove the values that no plan
 * of a given model uses (`variants` of the kernel's declaration):
 *
 *     switch (EW_CHOICE(UNARY_OP, p->op)) ...               loses the unused cases
 *     if (EW_USES(GEMM_B, EW_F16) && is_half) ...           becomes false if no plan has the value
 *
 * Wasm only. Each use compiles to a function call, which is how edgewise.shake finds it; keep them
 * out of inner loops. */
#if defined(__wasm__)
int32_t ew_choice(int32_t value, int32_t name);
int32_t ew_uses(int32_t minus_name_and_value);
#  define EW_CHOICE(NAME, x) ew_choice((x), EW_VARIANT_##NAME)
/* negative, so that it differs from every function number */
#  define EW_USES(NAME, VALUE) ew_uses(-1 - (EW_VARIANT_##NAME * 64 + (VALUE)))
#else
#  define EW_CHOICE(NAME, x) (x)
#  define EW_USES(NAME, VALUE) true
#endif

/* Calls task(arg, i, thread) for each i in 0..count-1, on up to ew_threads threads, in any order,
 * and returns when all calls have returned. A plain loop in builds without threads. A task should
 * take at least about 20 microseconds; count 1 runs on the calling thread without synchronization.
 */
typedef void (*ew_task)(void *arg, int32_t index, int32_t thread);
void ew_parallel(ew_context *, int32_t count, ew_task task, void *arg);
/* True if the host has asked to end the run (ew_stop). Tasks not yet started are then skipped and
 * the step's results are discarded; therefore a kernel must not use what its tasks wrote as an
 * index or address without a check, and must not wait for it. Poll it in long tasks and in long
 * loops outside of tasks. */
bool ew_stopping(const ew_context *);
int32_t ew_parallel_width(const ew_context *); /* number of threads that ew_parallel can use */

/* Address of part `number` of an operand that consists of equal parts, `stride` bytes apart, of
 * which the kernel reads the first `bytes` bytes; NULL where the operand is absent. Returns
 * EW_AWAY if the host has bound the operand in pages (ew_plan_pages) and this one is not in memory:
 * the kernel returns that code as well, and is called again with ew_context.page = number once it
 * is there, with all other memory unchanged. Pages that were in memory may then have gone. Only for
 * operands that the kernel declares with `pages`, on the calling thread. */
int32_t ew_page(ew_context *, int32_t operand, void *base, int32_t number, int64_t stride,
                int64_t bytes, void **out);

/* A kernel is a function
 *
 *     int32_t ew_k_<name>(ew_context *, const ew_<name>_params *, void *const *operand)
 *
 * that returns EW_OK or an ew_error_code. The entry of an absent optional operand is NULL.
 * gen/kernels.h declares the parameter structs, the operand indices (EW_<NAME>_<OPERAND>) and the
 * functions. */
#endif
