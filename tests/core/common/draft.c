/* Drafts: plans as C structs that can be modified field by field. */
#include "fuzz.h"

static size_t put(uint8_t *plan, size_t at, const void *data, size_t n) {
  if (n) memcpy(plan + at, data, n);
  memset(plan + at + n, 0, 16);
  return (at + n + 15) / 16 * 16;
}

size_t write_draft(const draft *d, uint8_t *plan) {
  ew_plan_header h = {.table_hash = EW_TABLE_HASH,
                      .n_registers = d->n_registers,
                      .n_slots = d->n_slots,
                      .n_init_steps = d->n_init,
                      .n_steps = d->n_steps - d->n_init,
                      .arena_bytes = d->arena,
                      .const_bytes = d->const_bytes};
  memcpy(h.magic, EW_PLAN_MAGIC, 8);
  size_t at = (sizeof h + 15) / 16 * 16;
  h.registers_at = at, at = put(plan, at, d->registers, d->n_registers * sizeof *d->registers);
  h.slots_at = at, at = put(plan, at, d->slots, d->n_slots * sizeof *d->slots);
  h.const_at = at, at = put(plan, at, d->constants, d->const_bytes);
  h.steps_at = at;
  for (uint32_t i = 0; i < d->n_steps; i++) {
    const draft_step *s = &d->steps[i];
    const size_t padded = (s->param_bytes + 7) / 8 * 8, patches = s->n_patches * sizeof *s->patches,
                 operands = s->n_operands * sizeof *s->operands,
                 size = sizeof(ew_step_header) + padded + patches + operands;
    const ew_step_header sh = {s->kernel, s->n_operands,  s->n_patches,
                               0,         s->param_bytes, (uint32_t)size};
    if (at + size > MAX_PLAN) return 0;
    memset(plan + at, 0, size);
    memcpy(plan + at, &sh, sizeof sh);
    memcpy(plan + at + sizeof sh, s->params, s->param_bytes);
    if (patches) memcpy(plan + at + sizeof sh + padded, s->patches, patches);
    memcpy(plan + at + sizeof sh + padded + patches, s->operands, operands);
    at += size;
  }
  h.total_bytes = at;
  memcpy(plan, &h, sizeof h);
  return at;
}

/* Copies n items of `size` bytes from offset `at` of the plan, if they fit. */
static bool take(void *to, size_t room, const uint8_t *plan, size_t total, uint64_t at, uint64_t n,
                 size_t size) {
  if (n > room / size || at > total || n * size > total - at) return false;
  if (n) memcpy(to, plan + at, n * size);
  return true;
}

bool read_draft(draft *d, const uint8_t *plan, size_t n) {
  ew_plan_header h;
  if (n < sizeof h) return false;
  memcpy(&h, plan, sizeof h);
  if (!take(d->registers, sizeof d->registers, plan, n, h.registers_at, h.n_registers,
            sizeof *d->registers) ||
      !take(d->slots, sizeof d->slots, plan, n, h.slots_at, h.n_slots, sizeof *d->slots) ||
      !take(d->constants, sizeof d->constants, plan, n, h.const_at, h.const_bytes, 1))
    return false;
  d->n_registers = h.n_registers, d->n_slots = h.n_slots, d->const_bytes = h.const_bytes,
  d->arena = h.arena_bytes, d->n_init = d->n_steps = 0;
  size_t at = h.steps_at;
  for (uint64_t i = 0; i < (uint64_t)h.n_init_steps + h.n_steps; i++) {
    ew_step_header sh;
    if (!take(&sh, sizeof sh, plan, n, at, 1, sizeof sh) || sh.kernel >= EW_KERNEL_COUNT ||
        sh.step_bytes < sizeof sh || sh.step_bytes > n - at)
      return false;
    const size_t padded = (sh.param_bytes + (size_t)7) / 8 * 8, patches = at + sizeof sh + padded,
                 operands = patches + sh.n_patches * sizeof(ew_patch);
    draft_step s = {sh.kernel, sh.n_operands, sh.n_patches, sh.param_bytes, {0}, {{0}}, {{0}}};
    /* of a long plan, any contiguous range of steps: a draft has room for this many */
    const uint32_t room = sizeof d->steps / sizeof *d->steps;
    if (take(s.params, sizeof s.params, plan, n, at + sizeof sh, sh.param_bytes, 1) &&
        take(s.patches, sizeof s.patches, plan, n, patches, sh.n_patches, sizeof *s.patches) &&
        take(s.operands, sizeof s.operands, plan, n, operands, sh.n_operands, sizeof *s.operands))
      d->steps[d->n_steps < room ? d->n_steps++ : below(room)] = s;
    at += sh.step_bytes;
  }
  return d->n_steps > 0;
}
