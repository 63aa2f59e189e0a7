/* Edgewise engine: loads, checks and runs execution plans.
 *
 * A plan is a flat byte string produced by the Python compiler: a list of steps, each of which
 * calls one kernel with concrete parameters on operands in one arena, in a constant section, or in
 * slots. Plans are untrusted. ew_plan_load validates everything that can be validated once (the
 * bounds of each operand, computed from the reach that its kernel declares; aliasing; ids;
 * parameter rules), so that kernels only check indices that come from tensor data.
 *
 * The engine knows kernels, buffers and threads. It knows nothing of ONNX, files or pages, prints
 * nothing, never exits, and keeps no process-wide state: an ew_engine owns its arena and its thread
 * pool. An error is a code and a location; the host formats the message.
 *
 * Conventions
 *
 * - Functions that return int32_t return EW_OK or an ew_error_code, unless stated otherwise;
 *   ew_last_error has the details.
 * - An engine and its plans belong to one host thread at a time. Only ew_stop may be called from
 *   any thread at any time.
 * - Sizes and offsets are in bytes unless a name or comment says otherwise.
 *
 * Plan format: little-endian; sections in this order, each 16-byte aligned, at offsets from the
 * start of the plan:
 *
 *   ew_plan_header
 *   ew_register_entry[n_registers]   range of each register
 *   ew_slot_entry[n_slots]           size and access rights of each slot (weights, caches, inputs,
 *                                    outputs)
 *   constants                        const_bytes bytes of read-only operands
 *   steps                            n_init_steps + n_steps times:
 *                                      ew_step_header
 *                                      parameters (param_bytes, a multiple of 4, padded to 8)
 *                                      ew_patch[n_patches]
 *                                      ew_operand[n_operands]
 *
 * The init steps run once per load (ew_plan_init); they compute constants derived from weights,
 * such as packed matrices. */
#ifndef EDGEWISE_ENGINE_H
#define EDGEWISE_ENGINE_H
#include <stddef.h>
#include <stdint.h>

#if defined(__wasm__)
#  define EW_API(name) __attribute__((visibility("default"), used, export_name(#name)))
#else
#  define EW_API(name) __attribute__((visibility("default"), used))
#endif

/* First 8 bytes of a plan, without the terminating zero. The last character is the version. */
#define EW_PLAN_MAGIC "EDGEPLN1"

/* Values of ew_operand.buffer: the arena, the constants, slot i as EW_SLOT0 + i, or no operand. */
enum { EW_ARENA = 0, EW_CONST = 1, EW_SLOT0 = 2, EW_NONE = 0xffffffffu };

/* Bits of ew_slot_entry.flags. */
enum { EW_SLOT_WRITABLE = 1 };

typedef struct {
  char magic[8];       /* EW_PLAN_MAGIC */
  uint32_t table_hash; /* ew_table_hash() of the kernel table that the plan was compiled for */
  uint32_t n_registers, n_slots, n_init_steps, n_steps;
  uint32_t reserved;    /* 0 */
  uint64_t arena_bytes; /* size of the arena during a run */
  /* Offsets of the sections from the start of the plan; const_bytes is the size of the constants,
   * total_bytes that of the plan. */
  uint64_t registers_at, slots_at, const_at, const_bytes, steps_at, total_bytes;
} ew_plan_header;

/* Smallest and largest value that a register may hold, both inclusive. */
typedef struct {
  int64_t min, max;
} ew_register_entry;

typedef struct {
  uint64_t bytes;           /* minimum size of the memory bound to the slot */
  uint32_t flags, reserved; /* EW_SLOT_WRITABLE; 0 */
} ew_slot_entry;

typedef struct {
  uint16_t kernel;                          /* id in the kernel table */
  uint16_t n_operands, n_patches, reserved; /* counts; 0 */
  uint32_t param_bytes, step_bytes;         /* sizes of the parameters and of the whole step */
} ew_step_header;

/* A parameter that depends on a register. Before the step runs:
 * params.i32[field] = registers[reg] * scale + add. The loader checks the step at both ends of the
 * register's range. `field` is in units of 4 bytes. */
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
  /* An allocation failed. detail: bytes requested. */
  EW_E_MEMORY = 1,
  /* Not a plan, truncated, or sections out of bounds. detail: offset in the plan. */
  EW_E_FORMAT = 2,
  /* Compiled for another kernel table. detail: the plan's table hash. */
  EW_E_TABLE = 3,
  /* Unknown kernel, or wrong parameter size or operand count. */
  EW_E_KERNEL = 4,
  /* A parameter rule of the kernel is violated. detail: index of the rule. */
  EW_E_PARAM = 5,
  /* An operand extends beyond its buffer. */
  EW_E_BOUNDS = 6,
  /* An output overlaps another operand in a way the kernel does not allow. Or, with step -1: slot
   * `operand` overlaps slot `detail` and one of the two is writable, or it overlaps memory of the
   * engine (detail: EW_ALIAS_ARENA or EW_ALIAS_PLAN). */
  EW_E_ALIAS = 7,
  /* An output lies in the constants or in a slot that is not writable. */
  EW_E_READONLY = 8,
  /* A slot is not bound. operand: slot. */
  EW_E_UNBOUND = 9,
  /* A register value is out of range. operand: register. */
  EW_E_REGISTER = 10,
  /* An index read from tensor data is out of range. detail: the index. */
  EW_E_INDEX = 11,
  /* An argument of the call is invalid. */
  EW_E_ARGUMENT = 12,
  /* This engine was built without the step's kernel (detail: -1) or without the code for a
   * parameter's value (detail: the value). */
  EW_E_ABSENT = 13,
  /* ew_stop ended the run before or during this step. detail: value of the stop word. */
  EW_E_STOPPED = 14,
};

/* ew_error.detail of EW_E_ALIAS where a slot overlaps memory of the engine itself. */
enum { EW_ALIAS_ARENA = -1, EW_ALIAS_PLAN = -2 };

typedef struct ew_engine ew_engine;
typedef struct ew_plan ew_plan;

typedef struct {
  int32_t code;    /* ew_error_code */
  int32_t step;    /* index of the step, init steps counted first; -1: none */
  int32_t operand; /* index of the operand, slot or register, as the code says; -1: none */
  int32_t kernel;  /* id of the step's kernel; -1: none */
  int64_t detail;  /* as the code says */
} ew_error;

/* Opens an engine. threads: maximum number of threads that work at once, including the caller (1:
 * no thread is started). The native library starts its threads here; in the wasm build with threads
 * the host starts threads - 1 workers that call ew_worker. Returns NULL if memory runs out. The
 * caller closes the engine with ew_close, after freeing its plans. */
ew_engine *ew_open(int32_t threads);
void ew_close(ew_engine *);

/* Serves as thread `index` (1 to threads - 1) of the pool until ew_close. Wasm with threads only.
 */
void ew_worker(ew_engine *, int32_t index);

/* Sets the engine's stop word. While it is nonzero, a run (ew_plan_run, ew_plan_run_steps,
 * ew_plan_init, ew_plan_init_steps) of any plan of the engine ends with EW_E_STOPPED before its
 * next step, or within a step before a thread's next task. The host clears the word with stop = 0;
 * a run that has already seen it still ends.
 *
 * After EW_E_STOPPED the engine and its plans remain usable. Only the memory that the run would
 * have written (outputs, caches, weights updated by a training step) has undefined contents.
 *
 * Safe at any time between ew_open and ew_close, from any thread and from signal handlers: it is
 * one relaxed atomic store. The word is the first int32 of *ew_engine, so that an agent that shares
 * the wasm memory but has no instance can store to it directly (Atomics.store). */
void ew_stop(ew_engine *, int32_t stop);

/* Number of threads of the engine, including the caller. */
int32_t ew_threads(const ew_engine *);

#if !defined(__wasm__)
/* Must be called once in a child process after fork(), before any other function: starts the
 * threads that the child lacks. Returns EW_OK or EW_E_MEMORY. */
int32_t ew_after_fork(ew_engine *);
#endif

/* Details of the last error. The engine owns the result; the next failing call overwrites it. */
const ew_error *ew_last_error(const ew_engine *);

/* Hash of this engine's kernel table: names, parameters, operands and rules. */
uint32_t ew_table_hash(void);

/* 1 if this engine can run kernel `kernel`, 0 if the id is unknown or the engine was built without
 * it. */
int32_t ew_has_kernel(uint32_t kernel);

/* Instruction set of this build: "simd128", "relaxed-simd-threads", "x86-64", "x86-64-v3", ... A
 * static string. */
const char *ew_flavour(void);

/* Allocates `bytes` bytes, 64-byte aligned and zeroed; NULL if memory runs out. Freed with
 * ew_free. */
void *ew_alloc(size_t bytes);
/* The same with undefined contents, for memory that is filled at once, such as weights. */
void *ew_alloc_unset(size_t bytes);
void ew_free(void *);

/* Writes the XXH64 hash (seed 0) of `bytes` bytes at `data` to *out: the checksum of weights. */
void ew_xxh64(const void *data, size_t bytes, uint64_t *out);

/* Copies the n bytes of a plan, checks it and stores it in *out (NULL on failure). The caller frees
 * it with ew_plan_free before ew_close. */
int32_t ew_plan_load(ew_engine *, const void *bytes, size_t n, ew_plan **out);

/* Binds a slot to caller-owned memory, which must stay valid while it is bound. bytes: size of that
 * memory, at least the slot's size. NULL and 0 unbind the slot. The next run fails with EW_E_ALIAS
 * if the slot's memory overlaps the arena, or another bound slot of the plan when one of the two is
 * writable. */
int32_t ew_plan_bind(ew_plan *, uint32_t slot, void *data, size_t bytes);

/* Which steps use a slot: bit 0 init steps, bit 1 other steps. */
int32_t ew_plan_slot_use(const ew_plan *, uint32_t slot);

/* Range of the init steps that use a slot: the first one (end = 0) or one past the last (end = 1).
 * Both are 0 if no init step uses it. */
uint32_t ew_plan_slot_init(const ew_plan *, uint32_t slot, int32_t end);

/* Sets a register. EW_E_REGISTER if the value is out of the plan's range. */
int32_t ew_plan_register(ew_plan *, uint32_t reg, int64_t value);

/* Runs all init steps. */
int32_t ew_plan_init(ew_plan *);
/* Runs `count` init steps starting at `first`. Only the slots that these steps use
 * (ew_plan_slot_init) must be bound, so that a host can release weights as they are packed. */
int32_t ew_plan_init_steps(ew_plan *, uint32_t first, uint32_t count);

/* Runs all steps but the init steps. The plans of an engine share the arena: its contents do not
 * survive a run of another plan. */
int32_t ew_plan_run(ew_plan *);
/* Runs `count` steps starting at `first`, not counting init steps. seconds: NULL, or `count`
 * elements that receive the duration of each step (0 in wasm, which has no clock: run one step per
 * call). For profilers and for hosts that interleave other work. */
int32_t ew_plan_run_steps(ew_plan *, uint32_t first, uint32_t count, double *seconds);

void ew_plan_free(ew_plan *);
#endif
