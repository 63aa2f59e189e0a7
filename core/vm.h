/* What an engine and a loaded plan are made of. */
#ifndef EDGEWISE_VM_H
#define EDGEWISE_VM_H
#include "table.h"

typedef struct ew_pool ew_pool; /* parallel.c */
ew_pool *ew_pool_open(ew_engine *, int32_t threads);
void ew_pool_close(ew_pool *);
int32_t ew_pool_width(const ew_pool *);

struct ew_engine {
  /* ew_stop; other threads and signal handlers write it, so it is accessed atomically only */
  int32_t stop;
  int32_t stopped; /* the word's value, once the present run has seen it */
  ew_pool *pool;
  uint8_t *arena;
  uint64_t arena_bytes; /* at least those of any plan loaded */
  ew_error error;
};

typedef struct {
  const ew_kernel *kernel;
  const ew_functions *code;
  int32_t *params; /* in the plan's copy, patched in place */
  const ew_patch *patches;
  const ew_operand *operands;
  uint16_t id, n_patches;
  bool empty;       /* touches nothing with the present registers */
  bool registers;   /* params or addresses depend on registers */
  uint64_t checked; /* `version` of the plan's registers that params and `empty` belong to */
} ew_step;

typedef struct {
  void *data;
  uint64_t bytes;
  bool writable, bound, in_steps; /* the last: used by other than init steps */
  /* in the plan's list of slots that were bound since the last check */
  bool fresh;
  uint32_t init_begin, init_end; /* init steps that use it lie in between; equal: none does */
} ew_slot;

struct ew_plan {
  ew_engine *engine;
  uint8_t *bytes; /* our copy */
  uint64_t n_bytes;
  uint64_t arena_bytes, const_bytes;
  const uint8_t *constants;
  uint32_t n_registers, n_slots, n_init_steps, n_steps;
  const ew_register_entry *limits;
  int64_t *registers;
  uint64_t version; /* counts changes of registers */
  ew_slot *slots;
  uint32_t *fresh, n_fresh;  /* room for all slots */
  const uint8_t *arena_seen; /* the engine's arena when slots were last compared with it */
  ew_step *steps;
};

/* Whether the present run is to end. Kernels ask it in long loops outside of ew_parallel, and may
 * then return anything. */
static inline bool ew_engine_stopping(ew_engine *e) {
  const int32_t stop = __atomic_load_n(&e->stop, __ATOMIC_RELAXED);
  if (!stop) return false;
  __atomic_store_n(&e->stopped, stop, __ATOMIC_RELAXED);
  return true;
}

int32_t ew_fail(ew_engine *, int32_t code, int64_t step, int64_t operand, int32_t kernel,
                int64_t detail);

/* Patches the step's parameters from `registers` and checks the step as it then is: rules, bounds,
 * rights, aliasing. */
int32_t ew_step_check(ew_plan *, ew_step *, const int64_t *registers);

/* Before a run: whether slots bound since the last one overlap anything they must not
 * (EW_E_ALIAS). */
int32_t ew_check_slots(ew_plan *);
#endif
