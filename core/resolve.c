/* Hands out steps as they would run now, for hosts that run them on another device. */
#include "vm.h"
#include <string.h>

static uint32_t padded(uint32_t param_bytes) { return (param_bytes + 7) / 8 * 8; }

static uint32_t record_bytes(const ew_step *s) {
  return (uint32_t)(sizeof(ew_resolved_step) + padded(s->kernel->param_bytes) +
                    s->kernel->n_operands * sizeof(ew_resolved_operand));
}

/* Writes the record of one step, whose parameters are those of the present registers. */
static void write_step(const ew_plan *p, const ew_step *s, uint8_t *out) {
  const ew_kernel *kernel = s->kernel;
  const uint32_t flags = (s->empty ? EW_STEP_EMPTY : 0) | (s->registers ? EW_STEP_REGISTERS : 0);
  const ew_resolved_step head = {s->id, kernel->n_operands, flags, kernel->param_bytes,
                                 record_bytes(s)};
  memset(out, 0, head.step_bytes);
  memcpy(out, &head, sizeof head);
  memcpy(out + sizeof head, s->params, kernel->param_bytes);
  out += sizeof head + padded(kernel->param_bytes);
  ew_reach reach[EW_MAX_OPERANDS];
  bool empty = true;
  s->code->check(s->params, reach, &empty);
  for (int i = 0; i < kernel->n_operands; i++, out += sizeof(ew_resolved_operand)) {
    const ew_operand *o = &s->operands[i];
    ew_resolved_operand r = {.buffer = o->buffer};
    if (o->buffer != EW_NONE && !empty) {
      /* none of this overflows: ew_step_check has computed it */
      r.offset = o->offset + (o->reg ? p->registers[o->reg - 1] * o->scale : 0);
      r.element_bytes = (uint32_t)reach[i].size;
      r.begin = r.offset + reach[i].lo * reach[i].size;
      r.end = r.offset + reach[i].hi * reach[i].size;
    }
    memcpy(out, &r, sizeof r);
  }
}

EW_API(ew_plan_resolve)
int32_t ew_plan_resolve(ew_plan *p, uint32_t first, uint32_t count, void *out, size_t *bytes) {
  const uint64_t n_steps = (uint64_t)p->n_init_steps + p->n_steps;
  const size_t room = *bytes;
  uint64_t needed = 0;
  *bytes = 0;
  if (first > n_steps || count > n_steps - first)
    return ew_fail(p->engine, EW_E_ARGUMENT, -1, -1, -1, first);
  for (uint32_t i = 0; i < count; i++) needed += record_bytes(&p->steps[first + i]);
  if (needed > SIZE_MAX) return ew_fail(p->engine, EW_E_MEMORY, -1, -1, -1, (int64_t)needed);
  *bytes = (size_t)needed;
  if (!out) return EW_OK;
  if (needed > room) return ew_fail(p->engine, EW_E_ARGUMENT, -1, -1, -1, (int64_t)needed);
  uint8_t *at = out;
  for (uint32_t i = 0; i < count; i++) {
    ew_step *s = &p->steps[first + i];
    const int32_t code = ew_step_refresh(p, s);
    if (code) return code;
    write_step(p, s, at);
    at += record_bytes(s);
  }
  return EW_OK;
}
