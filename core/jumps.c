/* Steps that jump: `branch` skips steps, `loop_begin` skips the body of a loop that has no
 * iteration, and `loop_end` at the end of the body goes back to its first step.
 *
 * Jumps stay within the steps of a run. Only `loop_end` goes back, and each time it counts an
 * iteration; their number in a run is limited, so every run ends. What a step may touch does not
 * depend on how it is reached: it is checked as any other, for every value of a counter.
 *
 * A *region* is the steps from one that may be jumped over, or back to, to the end of that jump,
 * together with all regions that overlap it. */
#include "vm.h"

enum { COUNTER, STEPS }; /* words of the parameters of all three kernels */

static int32_t bad(ew_plan *p, uint32_t step, int64_t detail) {
  return ew_fail(p->engine, EW_E_JUMP, step, -1, p->steps[step].id, detail);
}

static int32_t check_jump(ew_plan *p, uint32_t at) {
  const ew_step *s = &p->steps[at];
  const uint32_t end = p->n_init_steps + p->n_steps;
  const int64_t steps = s->params[STEPS], counter = s->params[COUNTER];
  if (at < p->n_init_steps) return bad(p, at, -1);
  for (int i = 0; i < s->n_patches; i++)
    if (s->patches[i].field <= STEPS) return bad(p, at, s->patches[i].field);
  if (s->id == EW_KERNEL_BRANCH ? counter != -1
                                : counter < p->n_computed || counter >= p->n_registers)
    return bad(p, at, counter);
  const bool back = s->id == EW_KERNEL_LOOP_END;
  /* `loop_end` counts itself; the loader's rules have excluded negative numbers */
  if (back ? steps > (int64_t)at + 1 - p->n_init_steps : steps > (int64_t)end - at - 1)
    return bad(p, at, steps);
  const uint32_t first = back ? at + 1 - (uint32_t)steps : at;
  const uint32_t last = back ? at + 1 : at + 1 + (uint32_t)steps;
  if (p->steps[first].end < last) p->steps[first].end = last;
  return EW_OK;
}

int32_t ew_check_jumps(ew_plan *p) {
  const uint32_t n = p->n_init_steps + p->n_steps;
  for (uint32_t i = 0; i < n; i++) p->steps[i].end = i + 1;
  for (uint32_t i = 0; i < n; i++) {
    ew_step *s = &p->steps[i];
    s->jumps =
        s->id == EW_KERNEL_BRANCH || s->id == EW_KERNEL_LOOP_BEGIN || s->id == EW_KERNEL_LOOP_END;
    const int32_t code = s->jumps ? check_jump(p, i) : EW_OK;
    if (code) return code;
  }
  for (uint32_t first = 0, end; first < n; first = end) {
    end = first + 1;
    for (uint32_t i = first; i < end; i++)
      if (p->steps[i].end > end) end = p->steps[i].end;
    for (uint32_t i = first; i < end; i++) p->steps[i].end = end, p->steps[i].inside = i > first;
  }
  return EW_OK;
}

int32_t ew_follow_jump(ew_plan *p, const ew_step *s, const ew_context *c, uint32_t *next) {
  if (s->id == EW_KERNEL_LOOP_BEGIN ? !c->skip : c->skip < 0) { /* an iteration begins */
    const uint32_t reg = (uint32_t)s->params[COUNTER];
    if (p->trips == p->max_trips)
      return ew_fail(p->engine, EW_E_TRIPS, s - p->steps, -1, s->id, p->max_trips);
    if (c->counter > p->limits[reg].max)
      return ew_fail(p->engine, EW_E_REGISTER, s - p->steps, reg, s->id, c->counter);
    p->trips++;
    if (p->registers[reg] != c->counter) p->registers[reg] = c->counter, p->version++;
  }
  *next += (uint32_t)c->skip; /* modulo 2^32, also where it is negative */
  return EW_OK;
}
