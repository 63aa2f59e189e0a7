/* Edgewise engine: executes plans.
 *
 * A plan is flat bytes made by the Python package: steps that call kernels with concrete parameters
 * on operands that lie in one arena, in a constant section or in slots. It is untrusted:
 * ew_plan_load checks everything once (bounds of each operand from its kernel's declared reach,
 * aliasing, ids, parameter rules), so kernels check only indices that come from data.
 *
 * The engine knows kernels, buffers and threads; never ONNX, a file or a page. It prints nothing,
 * never exits, and has no process-wide state but the thread pool of its ew_engine. Errors are a
 * code and a place; the words are the host's.
 *
 * Plan layout, little-endian, every section 16-byte aligned (offsets from the start of the plan),
 * in this order:
 *   ew_plan_header ew_register_entry[n_registers]       smallest and largest value a register may
 *   be given ew_slot_entry[n_slots]               bytes and rights of each slot (weights, caches,
 *   inputs, outputs) constants                            const_bytes bytes, read-only operands
 *   steps: n_init_steps + n_steps times
 *     ew_step_header, then params (param_bytes, multiple of 4, padded to 8), ew_patch[n_patches],
 *     ew_operand[n_operands]
 * The init steps run once per load (ew_plan_init): they compute constants that follow from weights.
 * / */
#ifndef EDGEWISE_ENGINE_H
#define EDGEWISE_ENGINE_H
#include <stddef.h>
#include <stdint.h>

#if defined(__wasm__)
#  define EW_API(name) __attribute__((visibility("default"), used, export_name(#name)))
#else
#  define EW_API(name) __attribute__((visibility("default"), used))
#endif

#define EW_PLAN_MAGIC "EDGEPLN1"
enum { EW_ARENA = 0, EW_CONST = 1, EW_SLOT0 = 2, EW_NONE = 0xffffffffu }; /* ew_operand.buffer */
enum { EW_SLOT_WRITABLE = 1 };

typedef struct {
  char magic[8];
  uint32_t table_hash; /* hash of the kernel table this plan was made for */
  uint32_t n_registers, n_slots, n_init_steps, n_steps;
  uint32_t reserved;
  uint64_t arena_bytes;
  uint64_t registers_at, slots_at, const_at, const_bytes, steps_at, total_bytes;
} ew_plan_header;

typedef struct {
  int64_t min, max;
} ew_register_entry;
typedef struct {
  uint64_t bytes;
  uint32_t flags, reserved;
} ew_slot_entry;
typedef struct {
  uint16_t kernel, n_operands, n_patches, reserved;
  uint32_t param_bytes, step_bytes;
} ew_step_header;
/* before the step runs: params.i32[field] = registers[reg] * scale + add; checked at both ends of
 * the register's range */
typedef struct {
  uint32_t field, reg;
  int64_t scale, add;
} ew_patch;
/* address = base(buffer) + offset + (reg ? registers[reg - 1] * scale : 0), in bytes */
typedef struct {
  uint32_t buffer, reg;
  int64_t offset, scale;
} ew_operand;

enum ew_error_code {
  EW_OK = 0,
  EW_E_MEMORY = 1, /* an allocation failed; detail = bytes wanted */
  EW_E_FORMAT = 2, /* not a plan, truncated, or sections out of bounds; detail = offset */
  EW_E_TABLE = 3,  /* made for another kernel table; detail = its hash */
  EW_E_KERNEL = 4, /* unknown kernel, wrong parameter size or operand count */
  /* a parameter rule of the kernel does not hold; detail = index of the rule */
  EW_E_PARAM = 5,
  EW_E_BOUNDS = 6, /* an operand reaches outside its buffer */
  EW_E_ALIAS =
      7, /* an output overlaps another operand in a way the kernel does not allow; or (step -1) slot `operand` lies in the same memory as
            slot `detail`, and one of them is written, or as EW_ALIAS_ARENA or EW_ALIAS_PLAN */
  EW_E_READONLY = 8,  /* an output in constants or in a slot that is not writable */
  EW_E_UNBOUND = 9,   /* a slot is not bound; operand = slot */
  EW_E_REGISTER = 10, /* register value out of range; operand = register */
  EW_E_INDEX = 11,    /* an index that came from data is out of range; detail = the index */
  EW_E_ARGUMENT = 12, /* a call's argument is wrong */
  /* this engine was made without the step's kernel (detail -1), or without the code for a
   * parameter's value (detail) */
  EW_E_ABSENT = 13,
  EW_E_STOPPED = 14, /* ew_stop ended the run before or in this step; detail = the word's value */
};

enum { EW_ALIAS_ARENA = -1, EW_ALIAS_PLAN = -2 };

typedef struct ew_engine ew_engine;
typedef struct ew_plan ew_plan;
/* step counts init steps first; -1: none */
typedef struct {
  int32_t code, step, operand, kernel;
  int64_t detail;
} ew_error;

/* threads: how many may work at once, the caller among them (1: none are started). Natively threads
 * are started here; in the wasm flavour with threads the host starts threads-1 workers that call
 * ew_worker. */
ew_engine *ew_open(int32_t threads);
void ew_close(ew_engine *);
void ew_worker(ew_engine *, int32_t index); /* wasm with threads only: serves until ew_close */
/* Sets the engine's stop word. While it is not 0, a run (ew_plan_run, ew_plan_run_steps,
 * ew_plan_init, ew_plan_init_steps) of any plan of the engine ends with EW_E_STOPPED before its
 * next step, or within a step at the next task of a thread. The host clears it with stop = 0; a run
 * that has seen it ends all the same. After EW_E_STOPPED the engine and its plans can be used
 * again: only what the run was to write (outputs, caches, weights that a training step updates) has
 * no defined contents. May be called at any time between ew_open and ew_close, from any thread and
 * from signal handlers: it is one relaxed atomic store. The word is the first int32 of *ew_engine,
 * so that agents that share a wasm memory, but have no instance, can store to it
 * (Atomics.store). */
void ew_stop(ew_engine *, int32_t stop);
int32_t ew_threads(const ew_engine *);
#if !defined(__wasm__)
/* To be called once in a child process after fork(), before anything else: starts the threads that
 * the child lacks. EW_E_MEMORY, or EW_OK. */
int32_t ew_after_fork(ew_engine *);
#endif
const ew_error *ew_last_error(const ew_engine *);
uint32_t ew_table_hash(void);
int32_t ew_has_kernel(uint32_t kernel); /* 0: unknown, or this engine was made without it */
const char *ew_flavour(void); /* "simd128", "relaxed-simd-threads", "x86-64", "x86-64-v3", ... */

void *ew_alloc(size_t bytes); /* 64-byte aligned, zeroed; NULL when there is no memory */
/* likewise, with anything in it: for what is filled at once, as weights are, which would be
 * written twice */
void *ew_alloc_unset(size_t bytes);
void ew_free(void *);
/* XXH64 with seed 0 of any bytes, for checks of weights */
void ew_xxh64(const void *data, size_t bytes, uint64_t *out);

/* Copies and checks the plan. On failure *out is NULL. */
int32_t ew_plan_load(ew_engine *, const void *bytes, size_t n, ew_plan **out);
/* Lets a slot lie at `data`. bytes: what there is of memory, at least the slot's size; data stays
 * the caller's. NULL and 0: unbound again. The next run fails with EW_E_ALIAS if the slot's size
 * there overlaps the arena, or another bound slot of the plan while one of both is writable. */
int32_t ew_plan_bind(ew_plan *, uint32_t slot, void *data, size_t bytes);
/* 1: init steps use it, 2: the others do, 3: both */
int32_t ew_plan_slot_use(const ew_plan *, uint32_t slot);
/* the first init step that uses it, or, for `end`, the one behind the last; both 0: none does */
uint32_t ew_plan_slot_init(const ew_plan *, uint32_t slot, int32_t end);
int32_t ew_plan_register(ew_plan *, uint32_t reg, int64_t value);
int32_t ew_plan_init(ew_plan *);
/* Runs `count` init steps from `first`; only slots in use between two of them (ew_plan_slot_init)
 * must be bound. For hosts that let go of weights as they are packed. */
int32_t ew_plan_init_steps(ew_plan *, uint32_t first, uint32_t count);
int32_t ew_plan_run(ew_plan *); /* runs all steps; the arena is shared by the plans of an engine */
/* Runs `count` steps from `first`, counted without the init steps; seconds (may be NULL) gets each
 * step's time (0 in wasm, which has no clock: run one step per call). For profiles and for hosts
 * that interleave. */
int32_t ew_plan_run_steps(ew_plan *, uint32_t first, uint32_t count, double *seconds);
void ew_plan_free(ew_plan *);
#endif
