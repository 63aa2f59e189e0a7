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
 *   ew_register_entry[n_registers]   range of each register: lengths, values that follow from them,
 *                                    counters of loops
 *   ew_slot_entry[n_slots]           size and access rights of each slot (weights, caches, inputs,
 *                                    outputs)
 *   constants                        const_bytes bytes of read-only operands
 *   steps                            n_init_steps + n_steps times:
 *                                      ew_step_header
 *                                      parameters (param_bytes, a multiple of 4, padded to 8)
 *                                      ew_patch[n_patches]
 *                                      ew_operand[n_operands]
 *
 * gen/plan_format.h declares the structs and the error codes. The init steps run once per load
 * (ew_plan_init); they compute constants derived from weights, such as packed matrices. */
#ifndef EDGEWISE_ENGINE_H
#define EDGEWISE_ENGINE_H
#include "gen/plan_format.h"
#include <stddef.h>
#include <stdint.h>

#if defined(__wasm__)
#  define EW_API(name) __attribute__((visibility("default"), used, export_name(#name)))
#else
#  define EW_API(name) __attribute__((visibility("default"), used))
#endif

typedef struct ew_engine ew_engine;
typedef struct ew_plan ew_plan;

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

/* The engine's share of the processors, for hosts that have several engines: from now on `threads`
 * of its threads work, the caller among them, and runs return EW_TURN after each `steps` steps (0:
 * they do not), where the host may wait and change both. Only in wasm threads obey; which of them
 * work has no effect on results. At first all work, and runs return at their end. */
void ew_share(ew_engine *, int32_t threads, int32_t steps);

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

/* Instruction set of this build: "simd128", "relaxed-simd", "x86-64", "x86-64-v3", ... A
 * static string. */
const char *ew_flavour(void);

/* x86-64 only: the highest level that this CPU and operating system support, 4 (AVX-512), 3 (AVX2,
 * FMA) or 1. */
int32_t ew_cpu_level(void);

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
 * memory, at least the slot's size unless it grows. NULL and 0 unbind the slot. The next run fails
 * with EW_E_ALIAS if the slot's memory overlaps the arena, or another bound slot of the plan when
 * one of the two is writable. */
int32_t ew_plan_bind(ew_plan *, uint32_t slot, void *data, size_t bytes);

/* Binds a slot that consists of `count` equal pages, the weights of an expert each, to memory that
 * each page has of its own, so that pages can be away. The caller changes `data` between runs and
 * while a run waits for a page (EW_AWAY). The array and the memory must be valid until the slot is
 * bound again, and no step may write them. EW_E_ARGUMENT unless products of experts alone read the
 * slot (expert_gemm, expert_nbits), from its beginning on, as weights, scales, zero points or
 * bias. */
typedef struct {
  void *data;    /* NULL while it is away */
  uint64_t used; /* when a step last used it: higher for later uses; the engine sets it */
} ew_page_entry;
int32_t ew_plan_pages(ew_plan *, uint32_t slot, ew_page_entry *pages, uint32_t count);

/* Which steps use a slot: bit 0 init steps, bit 1 other steps. */
int32_t ew_plan_slot_use(const ew_plan *, uint32_t slot);

/* Range of the init steps that use a slot: the first one (end = 0) or one past the last (end = 1).
 * Both are 0 if no init step uses it. */
uint32_t ew_plan_slot_init(const ew_plan *, uint32_t slot, int32_t end);

/* Sets a register. EW_E_REGISTER if the value is out of the plan's range. */
int32_t ew_plan_register(ew_plan *, uint32_t reg, int64_t value);

/* Sets the limit of the iterations of all loops of a run together, EW_MAX_TRIPS before that. A run
 * beyond it ends with EW_E_TRIPS. Returns the iterations of the latest run. */
enum { EW_MAX_TRIPS = 1 << 20 };
uint32_t ew_plan_trips(ew_plan *, uint32_t limit);

/* Runs all init steps. */
int32_t ew_plan_init(ew_plan *);
/* Runs `count` init steps starting at `first`. Only the slots that these steps use
 * (ew_plan_slot_init) must be bound, so that a host can release weights as they are packed. */
int32_t ew_plan_init_steps(ew_plan *, uint32_t first, uint32_t count);

/* Runs all steps but the init steps. The plans of an engine share the arena: its contents do not
 * survive a run of another plan. */
int32_t ew_plan_run(ew_plan *);
/* The same in parts, for hosts that have to do something else in between, such as finding out that
 * the run was aborted: returns EW_PAUSED after `trips` iterations of loops, and goes on in the next
 * call. It begins again if the engine has run another plan, or loaded one, in between. */
enum { EW_PAUSED = -1 };
int32_t ew_plan_run_some(ew_plan *, uint32_t trips);

/* Runs `count` steps starting at `first`, not counting init steps. seconds: NULL, or `count`
 * elements that receive the time spent in each step (0 in wasm, which has no clock: run one step
 * per call). For profilers and for hosts that interleave other work. A loop or a branch is run as a
 * whole by the call that includes its first step; other calls skip its steps. */
int32_t ew_plan_run_steps(ew_plan *, uint32_t first, uint32_t count, double *seconds);

/* Writes steps `first` to first + count - 1, init steps counted first, to `out` as other devices
 * can run them: one ew_resolved_step after the other, with the present values of the registers.
 * What it writes has been checked: kernel, parameters and operands satisfy the kernel's contract as
 * long as the arena, the constants and the slots have at least the plan's sizes and do not overlap
 * (ew_plan_bind).
 *
 * bytes: in, the size of `out`; out, the size of these records, also if `out` is NULL, which writes
 * nothing, or too small (EW_E_ARGUMENT). The size of a step's record does not depend on registers.
 * EW_E_PARAM, EW_E_BOUNDS or EW_E_ALIAS, as from a run, if a step cannot run with these values. */
int32_t ew_plan_resolve(ew_plan *, uint32_t first, uint32_t count, void *out, size_t *bytes);

/* Returned by a run that needs a page that is away: ew_last_error has the slot as `operand` and the
 * number of the page as `detail`. The host brings the page, and may take away others, and calls
 * ew_plan_go_on, which returns as the run would have, and writes its times. Or it gives up: the
 * next run begins anew. */
enum { EW_AWAY = -2 };
/* Returned by all runs, those of init steps too, as ew_share says: the host calls ew_plan_go_on, or
 * gives up. */
enum { EW_TURN = -3 };
/* EW_E_ARGUMENT if no run of the plan waits, or another one has run since. */
int32_t ew_plan_go_on(ew_plan *);

void ew_plan_free(ew_plan *);
#endif
