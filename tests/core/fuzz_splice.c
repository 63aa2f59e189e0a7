/* Combines the steps of two real plans, then exchanges parts of them: kernels of equal signature,
 * parameters, operands, registers and patches are swapped, and several parameters become large at
 * once. This tests steps that are valid on their own, on operands produced by other plans. For
 * usage see common/fuzz.h. */
#include "common/fuzz.h"

static draft_step *any(draft *d) { return &d->steps[below(d->n_steps)]; }
static int64_t near(int64_t v) {
  return (int64_t)((uint64_t)v + (uint64_t)(int64_t)PICK(-4096, -64, -4, -1, 1, 4, 64, 4096));
}

static void change(draft *d) {
  draft_step *a = any(d), *b = any(d);
  switch (below(12)) {
  case 0: /* another kernel for the same parameters and operands */
    if (a->param_bytes == b->param_bytes && a->n_operands == b->n_operands) {
      const uint16_t k = a->kernel;
      a->kernel = b->kernel, b->kernel = k;
    }
    break;
  case 1: /* other parameters for the same kernel */
    if (a->kernel == b->kernel) memcpy(a->params, b->params, sizeof a->params);
    break;
  case 2: { /* some parameters of another step */
    int32_t params[MAX_PARAMS] = {0};
    if (one_in(2))
      guess(a->kernel, params);
    else
      guess_large(a->kernel, params);
    for (int i = 0; i < kernels[a->kernel].n; i++) {
      const field *f = &kernels[a->kernel].fields[i];
      if (one_in(4)) memcpy(a->params + f->at, params + f->at, (size_t)f->length * 4);
    }
    break;
  }
  case 3: { /* one parameter, or adjacent ones */
    const uint32_t words = a->param_bytes / 4, at = below(words), n = one_in(2) ? 1 : 1 + below(3);
    for (uint32_t i = at; i < at + n && i < words; i++)
      a->params[i] = one_in(2) ? (int32_t)near(a->params[i]) : (int32_t)telling();
    break;
  }
  case 4:
  case 5: { /* operands */
    ew_operand *x = &a->operands[below(a->n_operands)], *y = &b->operands[below(b->n_operands)],
               t = *x;
    *x = *y;
    if (one_in(2)) *y = t;
    break;
  }
  case 6: { /* an operand at another offset */
    ew_operand *o = &a->operands[below(a->n_operands)];
    o->offset = one_in(6) ? telling() : near(o->offset);
    break;
  }
  case 7: { /* in another buffer */
    ew_operand *o = &a->operands[below(a->n_operands)];
    o->buffer = one_in(4) ? EW_ARENA : one_in(6) ? EW_CONST : EW_SLOT0 + below(d->n_slots + 1);
    break;
  }
  case 8: { /* an operand that depends on a register */
    ew_operand *o = &a->operands[below(a->n_operands)];
    o->reg = below(d->n_registers + 1), o->scale = PICK(0, 1, 4, 64, -4);
    break;
  }
  case 9: /* add, remove or change a patch */
    if (a->n_patches && one_in(3))
      a->n_patches--;
    else if (a->n_patches < 16)
      a->patches[a->n_patches++] =
          b->n_patches && one_in(2)
              ? b->patches[below(b->n_patches)]
              : (ew_patch){below(a->param_bytes / 4), below(d->n_registers + 1), PICK(0, 1, -1, 4),
                           PICK(0, 1, 4, -1)};
    break;
  case 10: { /* a register's range */
    if (!d->n_registers) break;
    ew_register_entry *r = &d->registers[below(d->n_registers)];
    *(one_in(2) ? &r->min : &r->max) = one_in(2) ? telling() : near(r->max);
    break;
  }
  default: /* a slot's size or access rights */
    if (!d->n_slots) break;
    ew_slot_entry *s = &d->slots[below(d->n_slots)];
    if (one_in(2))
      s->flags ^= EW_SLOT_WRITABLE;
    else
      s->bytes = one_in(3) ? (uint64_t)below(5000) : (uint64_t)near((int64_t)s->bytes);
  }
}

/* Renumbers the registers, slots and constant offsets of a step of the second plan for the combined
 * plan. */
static void move_step(draft_step *s, const draft *first, size_t const_at) {
  for (int i = 0; i < s->n_patches; i++) s->patches[i].reg += first->n_registers;
  for (int i = 0; i < s->n_operands; i++) {
    ew_operand *o = &s->operands[i];
    if (o->buffer == EW_NONE) continue;
    if (o->reg) o->reg += first->n_registers;
    if (o->buffer == EW_CONST)
      o->offset += (int64_t)const_at;
    else if (o->buffer >= EW_SLOT0)
      o->buffer += first->n_slots;
  }
}

static bool join(draft *d, const draft *other) {
  const size_t const_at = (d->const_bytes + 15) / 16 * 16;
  if (d->n_registers + other->n_registers > sizeof d->registers / sizeof *d->registers ||
      d->n_slots + other->n_slots > sizeof d->slots / sizeof *d->slots ||
      const_at + other->const_bytes > sizeof d->constants)
    return false;
  memset(d->constants + d->const_bytes, 0, const_at - d->const_bytes);
  memcpy(d->constants + const_at, other->constants, other->const_bytes);
  memcpy(d->registers + d->n_registers, other->registers,
         other->n_registers * sizeof *other->registers);
  memcpy(d->slots + d->n_slots, other->slots, other->n_slots * sizeof *other->slots);
  for (uint32_t i = 0; i < other->n_steps; i++) {
    draft_step s = other->steps[i];
    move_step(&s, d, const_at);
    if (d->n_steps < sizeof d->steps / sizeof *d->steps)
      d->steps[d->n_steps++] = s;
    else
      d->steps[below(d->n_steps)] = s;
  }
  d->const_bytes = const_at + other->const_bytes, d->n_registers += other->n_registers,
  d->n_slots += other->n_slots;
  if (other->arena > d->arena) d->arena = other->arena;
  return true;
}

static void run(ew_engine *engine) {
  static draft d, other;
  static uint8_t plan[MAX_PLAN + 64];
  if (!n_seeds) die("no seeds", "seeds");
  const fuzz_seed *a = &seeds[below(n_seeds)], *b = &seeds[below(n_seeds)];
  if (!read_draft(&d, a->bytes, a->n)) return; /* too large for a draft */
  if (one_in(2) && read_draft(&other, b->bytes, b->n)) join(&d, &other);
  d.n_init = 0;                                /* init steps become ordinary steps */
  const uint32_t left = PICK(1, 2, 4, 12, 40); /* keep this many steps, in any order */
  for (uint32_t i = 0; i < d.n_steps; i++) {
    const uint32_t j = below(d.n_steps);
    const draft_step s = d.steps[i];
    d.steps[i] = d.steps[j], d.steps[j] = s;
  }
  if (d.n_steps > left) d.n_steps = left;
  for (uint32_t n = PICK(0, 1, 1, 2, 4, 8); n; n--) change(&d);
  const size_t n = write_draft(&d, plan);
  if (n) try_plan(engine, plan, n, false);
}

int main(int argc, char **argv) { return fuzz(argc, argv, run, false); }
