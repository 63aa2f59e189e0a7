/* What a kernel sees: its parameters, its operands' addresses and the means to work in parallel. */
#ifndef EDGEWISE_KERNEL_H
#define EDGEWISE_KERNEL_H
#include "engine.h"
#include <stdbool.h>

enum {
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
  int64_t detail; /* what a failing kernel wants to tell */
} ew_context;

#include "gen/kernels.h"

/* What edgewise.shake leaves out of engines made for given models: the code for values of a
 * parameter that no plan of theirs has (Kernel's `variants`).
 *     switch (EW_CHOICE(UNARY_OP, p->op)) ...               loses the other cases
 *     if (EW_USES(GEMM_B, EW_F16) && is_half) ...           is false where no plan has the value
 * Only for .wasm, and no place for inner loops: there they are calls, by which they are found. */
#if defined(__wasm__)
int32_t ew_choice(int32_t value, int32_t name);
int32_t ew_uses(int32_t minus_name_and_value);
#  define EW_CHOICE(NAME, x) ew_choice((x), EW_VARIANT_##NAME)
/* negative, and so no function's number */
#  define EW_USES(NAME, VALUE) ew_uses(-1 - (EW_VARIANT_##NAME * 64 + (VALUE)))
#else
#  define EW_CHOICE(NAME, x) (x)
#  define EW_USES(NAME, VALUE) true
#endif

/* Calls task(arg, i) for i in 0..count-1, on up to ew_threads threads, in any order; returns when
 * all are done. A plain loop in a build without threads. Split so that a task is worth >= ~20
 * microseconds; count 1 runs on the caller at once. */
typedef void (*ew_task)(void *arg, int32_t index, int32_t thread);
void ew_parallel(ew_context *, int32_t count, ew_task task, void *arg);
/* Whether the host wants the run to end (ew_stop): tasks not begun are then left out, and the
 * step's results are never used. Therefore a kernel must not take what its tasks wrote for an index
 * or an address without a check, nor wait for it. For long loops outside of tasks and long
 * tasks. */
bool ew_stopping(const ew_context *);
int32_t ew_parallel_width(const ew_context *); /* how many threads a split may count on */

/* int32_t ew_k_<name>(ew_context *, const ew_<name>_params *, void *const *operand): EW_OK or an
 * ew_error_code. An absent optional operand is NULL. gen/kernels.h declares the parameter structs,
 * operand indices (EW_<NAME>_<OPERAND>) and functions. */
#endif
