/* Shared by the fuzzers: reproducible random numbers, parameters and data to try, drafts of plans,
 * and guarded execution.
 *
 *     fuzz_... [[--runs] N] [--seed S] [--first I] [--seconds T] [--seeds FOLDER] [--verbose]
 *
 * A run depends only on the seed and the number of the run; the report of a finding contains the
 * command that repeats it. */
#ifndef EDGEWISE_FUZZ_H
#define EDGEWISE_FUZZ_H
#include "../../../core/vm.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#  include <sanitizer/asan_interface.h>
#  define POISON(p, n) ASAN_POISON_MEMORY_REGION(p, n)
#  define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#  define POISON(p, n) ((void)(p), (void)(n))
#  define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

enum { MAX_FIELDS = 64, MAX_PARAMS = 256, MAX_PLAN = 1 << 20, MAX_PACKED = 1 << 20 };
/* maximum number of elementary operations of a step that is run */
#define MAX_WORK 3e6
#define MAX_BYTES (UINT64_C(1) << 24) /* maximum size of a slot or the arena */

/* common/fuzz.c: main program */
typedef struct {
  uint8_t *bytes;
  size_t n;
} fuzz_seed;
extern fuzz_seed seeds[64]; /* of plans: *.plan */
extern uint32_t n_seeds;
extern fuzz_seed packed[64]; /* of packages: *.packed, in the format of make_seeds.py */
extern uint32_t n_packed;
/* Calls `one` for each run. every_kernel: fail unless each kernel has run within 10,000 runs. */
int fuzz(int argc, char **argv, void (*one)(ew_engine *engine), bool every_kernel);
_Noreturn void die(const char *why, const char *kernel);

uint64_t next(void);
uint32_t below(uint32_t n);
static inline bool one_in(uint32_t n) { return below(n) == 0; }
#define PICK(...) \
  ((int32_t[]){__VA_ARGS__}[below(sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))])

/* common/guess.c */
/* at, length: in 32-bit words */
typedef struct {
  char name[24];
  bool is_float, counts;
  int at, length;
} field;
typedef struct {
  field fields[MAX_FIELDS];
  int n, dims;
  uint64_t composed, ran, refused;
} kernel_fields;
extern kernel_fields kernels[EW_KERNEL_COUNT];
const char *name_of(int kernel);
/* What the contract says that the kernel does with an operand. name: "kernel.operand". */
typedef enum { READ, WRITE, UPDATE, SCRATCH } access_kind;
access_kind access_of(int kernel, int operand, char *name, size_t room);
void read_names(void);
/* Whether a kernel decides which step is next. */
static inline bool is_jump(int kernel) {
  return kernel == EW_KERNEL_BRANCH || kernel == EW_KERNEL_LOOP_BEGIN ||
         kernel == EW_KERNEL_LOOP_END;
}
/* Plausible parameters. Most satisfy the kernel's rules; the check decides. */
void guess(int kernel, int32_t *params);
/* Parameters that no model has: several are large at once, or all sizes or strides are equal, so
 * that their products wrap. */
void guess_large(int kernel, int32_t *params);
/* Upper bound of the number of elementary operations, from the parameters that are counts. */
double work_of(int kernel, const int32_t *params);
int64_t telling(void); /* an integer at a boundary */
/* fill_random: bytes that are indices, types, floats or noise. fill_special: indices around
 * parameter values, NaN, infinities, subnormals. */
void fill_random(uint8_t *p, size_t n);
void fill_special(uint8_t *p, size_t n, const int32_t *params, int n_params);

/* common/mutate.c: changes some of the n bytes of a plan; returns the new number of bytes */
size_t mutate(uint8_t *plan, size_t n);

/* common/draft.c */
typedef struct {
  uint16_t kernel, n_operands, n_patches;
  uint32_t param_bytes;
  int32_t params[MAX_PARAMS];
  ew_patch patches[16];
  ew_operand operands[EW_MAX_OPERANDS];
} draft_step;
typedef struct {
  draft_step steps[96];
  uint8_t constants[1 << 16];
  ew_register_entry registers[16];
  ew_slot_entry slots[256];
  uint32_t n_registers, n_slots, n_init, n_steps; /* n_steps includes the init steps */
  size_t const_bytes;
  uint64_t arena;
} draft;
/* plan: MAX_PLAN bytes; returns 0 if it does not fit */
size_t write_draft(const draft *, uint8_t *plan);
/* false: invalid, or too large for a draft */
bool read_draft(draft *, const uint8_t *plan, size_t n);

/* common/run.c: loads a plan, binds its slots and runs it step by step. Slots are heap blocks of
 * exactly their size. While a step runs, the arena and the constants are poisoned except for what
 * the step declares to access, and read-only operands are compared afterwards, so that an access
 * one byte out of bounds is detected wherever the operands lie. Occasionally slots are bound to
 * shared memory, which the engine must reject if one of them is written. */
void try_plan(ew_engine *, const uint8_t *bytes, size_t n, bool must_work);
/* True if the engine accepts the bound slots. A comparison of all pairs must give the same. */
bool slots_are_right(ew_plan *);
/* Sets a register within its range. The engine may refuse it where others follow from it, and then
 * keeps all values. */
void set_register(ew_plan *, uint32_t reg, int64_t value);
/* Runs step `step`, counted with the init steps, of a plan whose slots are bound and checked. */
void run_guarded(ew_plan *, uint32_t step);
extern uint64_t loaded, ran, failed, skipped, stopped;
#endif
