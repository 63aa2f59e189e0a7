/* Internal structures of an engine and of a loaded plan. */
#ifndef EDGEWISE_VM_H
#define EDGEWISE_VM_H
#include "table.h"

typedef struct ew_pool ew_pool; /* see parallel.c */
ew_pool *ew_pool_open(ew_engine *, int32_t threads);
void ew_pool_close(ew_pool *);
int32_t ew_pool_width(const ew_pool *);
void ew_pool_share(ew_pool *, int32_t threads);

struct ew_engine {
  /* Stop word (ew_stop). Other threads and signal handlers write it: atomic access only. */
  int32_t stop;
  int32_t stopped; /* value of the stop word seen by the current run, 0 before that */
  int32_t share;   /* threads that may work (ew_share); read by all: atomic access only */
  int32_t turn;    /* steps after which runs return EW_TURN; 0: they do not */
  ew_pool *pool;
  uint8_t *arena;
  uint64_t arena_bytes;  /* maximum over the loaded plans */
  const ew_plan *paused; /* whose run goes on at ew_plan.next; its values are in the arena */
  uint64_t uses;         /* of pages */
  ew_error error;
};

typedef struct {
  const ew_kernel *kernel;
  const ew_functions *code;
  int32_t *params; /* point into the plan's copy; patched in place */
  const ew_patch *patches;
  const ew_operand *operands;
  uint16_t id, n_patches;
  bool empty;       /* accesses no memory with the current registers */
  bool registers;   /* parameters or addresses depend on registers */
  bool jumps;       /* decides which step is next */
  bool inside;      /* in a region (see jumps.c), and not its first step */
  uint32_t end;     /* one past the last step of its region */
  uint64_t checked; /* plan version for which params and `empty` were computed */
} ew_step;

typedef struct {
  void *data;
  uint64_t bytes; /* as the plan says */
  uint64_t room;  /* that steps may use: less where a slot grows and is bound to less */
  bool writable, grows, bound, in_steps; /* in_steps: used by a step that is not an init step */
  /* listed in ew_plan.fresh: bound since the last overlap check */
  bool fresh;
  ew_page_entry *pages; /* instead of data */
  uint32_t n_pages;
  uint32_t init_begin, init_end; /* range of the init steps that use it; empty if equal */
} ew_slot;

struct ew_plan {
  ew_engine *engine;
  uint8_t *bytes; /* copy owned by the plan */
  uint64_t n_bytes;
  uint64_t arena_bytes, const_bytes;
  const uint8_t *constants;
  uint32_t n_registers, n_slots, n_init_steps, n_steps;
  uint32_t n_lengths;  /* registers that the host sets */
  uint32_t n_computed; /* these and those that follow from them; the others are counters */
  const ew_register_entry *limits;
  int64_t *registers;
  uint64_t version;          /* incremented when a register changes */
  uint32_t trips, max_trips; /* iterations of all loops in the latest run, and their limit */
  uint32_t next;             /* step at which a paused run goes on, */
  uint32_t end, pause;       /* its end, and the iterations of loops after which it pauses */
  double *seconds;           /* the times of `count` steps from `first` on, or NULL */
  uint32_t first, count;
  bool away;     /* whether it waits for its share, or a page, */
  uint32_t slot; /* of this slot, */
  int32_t page;  /* with this number */
  ew_slot *slots;
  uint32_t *fresh, n_fresh;  /* slots bound since the last check; capacity n_slots */
  const uint8_t *arena_seen; /* engine's arena at the time of the last overlap check */
  ew_step *steps;
};

/* True if the current run must end. Kernels poll it in long loops outside of ew_parallel and may
 * then return any code. */
static inline bool ew_engine_stopping(ew_engine *e) {
  const int32_t stop = __atomic_load_n(&e->stop, __ATOMIC_RELAXED);
  if (!stop) return false;
  __atomic_store_n(&e->stopped, stop, __ATOMIC_RELAXED);
  return true;
}

int32_t ew_fail(ew_engine *, int32_t code, int64_t step, int64_t operand, int32_t kernel,
                int64_t detail);

/* Patches the step's parameters from `registers`, then checks the step: rules, bounds, access
 * rights and aliasing. */
int32_t ew_step_check(ew_plan *, ew_step *, const int64_t *registers);

/* Computes a register that follows from others. Returns false if its value is out of range. */
bool ew_derive(const ew_plan *, int64_t *registers, uint32_t reg);

/* Checks the steps that jump, when all steps are loaded, and finds the regions. */
int32_t ew_check_jumps(ew_plan *);

/* Follows a step that has run and jumps: counts an iteration, sets the counter, and adds the steps
 * to skip to *next. */
int32_t ew_follow_jump(ew_plan *, const ew_step *, const ew_context *, uint32_t *next);

/* ew_step_check, if the step depends on registers that have changed since. */
int32_t ew_step_refresh(ew_plan *, ew_step *);

/* Called before a run: EW_E_ALIAS if a slot bound since the last run overlaps memory that it must
 * not overlap. */
int32_t ew_check_slots(ew_plan *);
#endif
