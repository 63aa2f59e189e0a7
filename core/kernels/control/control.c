/* Steps that decide which step is next. They return how many steps to skip; the VM counts
 * iterations and sets the counters (jumps.c). */
#include "kernel.h"
#include <string.h>

int32_t ew_k_branch(ew_context *c, const ew_branch_params *p, void *const *operand) {
  const uint8_t *condition = operand[EW_BRANCH_CONDITION];
  if (!condition || !*condition) c->skip = p->steps;
  return EW_OK;
}

/* Whether a loop has an iteration number c->counter. */
static bool goes_on(const ew_context *c, int32_t trips, const void *limit, const void *condition) {
  int64_t n = trips;
  if (limit) memcpy(&n, limit, sizeof n); /* it need not be aligned */
  return c->counter < trips && c->counter < n && (!condition || *(const uint8_t *)condition);
}

int32_t ew_k_loop_begin(ew_context *c, const ew_loop_begin_params *p, void *const *operand) {
  c->counter = 0;
  if (!goes_on(c, p->trips, operand[EW_LOOP_BEGIN_LIMIT], operand[EW_LOOP_BEGIN_CONDITION]))
    c->skip = p->steps;
  return EW_OK;
}

int32_t ew_k_loop_end(ew_context *c, const ew_loop_end_params *p, void *const *operand) {
  c->counter++;
  if (goes_on(c, p->trips, operand[EW_LOOP_END_LIMIT], operand[EW_LOOP_END_CONDITION]))
    c->skip = -p->steps;
  return EW_OK;
}
