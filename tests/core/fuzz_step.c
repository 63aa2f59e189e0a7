/* Runs single steps with parameters that no model has (several large at once, equal strides, zero
 * strides) and matching data (indices around parameter values, NaN, infinities, subnormals), with
 * each operand in a heap block of its own. Steps that take long are ended by the engine's stop
 * word, which must end any step soon. For usage see common/fuzz.h. */
#if !defined(_POSIX_C_SOURCE)
#  define _POSIX_C_SOURCE 200809L
#endif
#include "common/fuzz.h"
#include <signal.h>
#include <sys/time.h>

enum { STOP_US = 50000, MAX_OPERANDS = 1 << 22 /* bytes, total */ };

static ew_engine *running;
static void stop_it(int signal) {
  (void)signal;
  ew_stop(running, 1);
}

/* Range of bytes of each operand; false if the kernel rejects the parameters or they need too much
 * memory. */
static bool reach_of(int k, const int32_t *params, int64_t *lo, int64_t *bytes) {
  ew_reach reach[EW_MAX_OPERANDS];
  bool empty = false;
  int64_t total = 0;
  if (ew_code.of[k].check(params, reach, &empty) != EW_CHECKED || empty) return false;
  for (int i = 0; i < ew_kernels[k].n_operands; i++) {
    int64_t hi;
    if (__builtin_mul_overflow(reach[i].lo, reach[i].size, &lo[i]) ||
        __builtin_mul_overflow(reach[i].hi, reach[i].size, &hi) ||
        __builtin_sub_overflow(hi, lo[i], &bytes[i]))
      return false;
    if (bytes[i] < 0 || bytes[i] > MAX_OPERANDS || (total += bytes[i]) > MAX_OPERANDS) return false;
  }
  return true;
}

static void run(ew_engine *engine) {
  static draft d;
  static uint8_t plan[MAX_PLAN + 64];
  const int k = (int)below(EW_KERNEL_COUNT);
  const ew_kernel *kernel = &ew_kernels[k];
  int32_t params[MAX_PARAMS] = {0};
  int64_t lo[EW_MAX_OPERANDS], bytes[EW_MAX_OPERANDS];
  int tries = 0;
  do {
    if (++tries > 400) return;
    guess_large(k, params);
  } while (!reach_of(k, params, lo, bytes));
  if (is_jump(k)) return; /* the same for all parameters: fuzz_plan.c */
  kernels[k].composed++;
  d.n_slots = kernel->n_operands, d.n_steps = 1;
  d.steps[0] =
      (draft_step){(uint16_t)k, kernel->n_operands, 0, kernel->param_bytes, {0}, {{0}}, {{0}}};
  memcpy(d.steps[0].params, params, kernel->param_bytes);
  for (uint32_t i = 0; i < d.n_slots; i++) {
    d.slots[i] =
        (ew_slot_entry){(uint64_t)bytes[i], kernel->outputs >> i & 1 ? EW_SLOT_WRITABLE : 0, 0};
    d.steps[0].operands[i] = (ew_operand){
        (kernel->optional >> i & 1) && one_in(4) ? EW_NONE : EW_SLOT0 + i, 0, -lo[i], 0};
  }
  ew_plan *p;
  const size_t n = write_draft(&d, plan);
  if (ew_plan_load(engine, plan, n, &p)) die("a step that its check takes was refused", name_of(k));
  loaded++;
  uint8_t *data[EW_MAX_OPERANDS];
  for (uint32_t i = 0; i < d.n_slots; i++) {
    data[i] = malloc(bytes[i] ? (size_t)bytes[i] : 1);
    if (!data[i]) abort();
    fill_special(data[i], (size_t)bytes[i], params, (int)kernel->param_bytes / 4);
    if (ew_plan_bind(p, i, data[i], (size_t)bytes[i])) die("bind", name_of(k));
  }
  const struct itimerval soon = {{0, 0}, {0, STOP_US}}, never = {{0, 0}, {0, 0}};
  running = engine;
  signal(SIGVTALRM, stop_it);
  setitimer(ITIMER_VIRTUAL, &soon, NULL);
  const int32_t code = ew_plan_run(p);
  setitimer(ITIMER_VIRTUAL, &never, NULL);
  ew_stop(engine, 0);
  if (code != EW_OK && code != EW_E_PARAM && code != EW_E_INDEX && code != EW_E_KERNEL &&
      code != EW_E_STOPPED)
    die("an error no kernel may have", name_of(k));
  if (code == EW_OK)
    ran++, kernels[k].ran++;
  else if (code == EW_E_STOPPED)
    stopped++;
  else
    failed++, kernels[k].refused++;
  for (uint32_t i = 0; i < d.n_slots; i++) free(data[i]);
  ew_plan_free(p);
}

int main(int argc, char **argv) { return fuzz(argc, argv, run, false); }
