/* Fuzzes the loader and the VM under sanitizers: with composed plans, which must be accepted and
 * run, and with mutations of them and of plans of real models (make_seeds.py), which may be
 * rejected but must never cause harm. For usage see common/fuzz.h. */
#include "common/fuzz.h"
#include <math.h>

/* Makes a field of the parameters depend on a register; `reach` is extended to what is accessed in
 * its range. Returns false, with `reach` unchanged, if the kernel does not allow it.
 */
static bool follow_register(const draft *d, int k, const int32_t *params, ew_reach *reach,
                            ew_patch *patch) {
  int32_t other[MAX_PARAMS];
  ew_reach end[EW_MAX_OPERANDS];
  const field *f = &kernels[k].fields[below((uint32_t)kernels[k].n)];
  *patch = (ew_patch){(uint32_t)f->at + below((uint32_t)f->length), below(d->n_registers),
                      one_in(3) ? 0 : 1, 0};
  const ew_register_entry *r = &d->registers[patch->reg];
  patch->add = params[patch->field] - r->min * patch->scale;
  if (f->is_float || r->max - r->min > 63) return false;
  memcpy(other, params, sizeof other);
  ew_reach all[EW_MAX_OPERANDS];
  memcpy(all, reach, sizeof all);
  for (int64_t v = r->min; v <= r->max; v++) { /* one that follows from others takes any of these */
    const int64_t value = v * patch->scale + patch->add;
    bool empty = true;
    other[patch->field] = (int32_t)value;
    if (value != (int32_t)value || work_of(k, other) >= MAX_WORK / 4 ||
        ew_code.of[k].check(other, end, &empty) != EW_CHECKED || empty)
      return false;
    for (int i = 0; i < ew_kernels[k].n_operands; i++) {
      const int64_t size = all[i].size, lo = end[i].lo * end[i].size, hi = end[i].hi * end[i].size,
                    lo0 = all[i].lo * size, hi0 = all[i].hi * size;
      all[i] = (ew_reach){1, lo < lo0 ? lo : lo0, hi > hi0 ? hi : hi0};
    }
  }
  memcpy(reach, all, sizeof all);
  return true;
}

/* Places an operand of the given reach in the constants, a new slot or the arena, perhaps at an
 * offset that depends on a register. Returns false if there is no room. */
static bool place(draft *d, const ew_reach *r, bool output, ew_operand *o) {
  const int64_t lo = r->lo * r->size, bytes = (r->hi - r->lo) * r->size;
  int64_t extra = 0;
  if (d->n_registers && one_in(4)) {
    o->reg = 1 + below(d->n_registers);
    o->scale = (int64_t)below(3) * r->size;
    extra = d->registers[o->reg - 1].max * o->scale;
  }
  int64_t base;
  const uint32_t where = below(3);
  if (!output && where == 0 && d->const_bytes + (size_t)(bytes + extra) < sizeof d->constants) {
    o->buffer = EW_CONST, base = (int64_t)d->const_bytes;
    d->const_bytes += (size_t)(bytes + extra);
  } else if (where <= 1 && d->n_slots < sizeof d->slots / sizeof *d->slots) {
    o->buffer = EW_SLOT0 + d->n_slots, base = (int64_t)below(20);
    d->slots[d->n_slots++] =
        (ew_slot_entry){(uint64_t)(base + bytes + extra), output ? EW_SLOT_WRITABLE : 0, 0};
  } else {
    if (d->arena > MAX_BYTES / 2) return false;
    o->buffer = EW_ARENA, base = (int64_t)(d->arena += one_in(2) ? below(20) : 0);
    d->arena += (uint64_t)(bytes + extra);
  }
  o->offset = base - lo - (o->reg ? d->registers[o->reg - 1].min * o->scale : 0);
  return true;
}

/* Perhaps lets output i be the same memory as an input before it that it may replace. */
static void place_over_input(draft *d, const ew_kernel *kernel, const ew_reach *reach,
                             ew_operand *operands, int i) {
  for (int j = 0; j < i; j++) {
    const ew_operand *input = &operands[j];
    const bool writable =
        input->buffer == EW_ARENA || (input->buffer != EW_NONE && input->buffer >= EW_SLOT0);
    bool taken = false;
    for (int q = 0; q < i; q++)
      taken |= (kernel->outputs >> q & 1) && operands[q].buffer == input->buffer &&
               operands[q].offset == input->offset;
    if ((kernel->inplace[i] >> j & 1) && writable && !taken && reach[i].lo == reach[j].lo &&
        reach[i].hi == reach[j].hi && reach[i].size == reach[j].size && one_in(2)) {
      operands[i] = *input;
      if (input->buffer >= EW_SLOT0) d->slots[input->buffer - EW_SLOT0].flags = EW_SLOT_WRITABLE;
      return;
    }
  }
}

/* Appends a step of a random kernel with plausible parameters to the draft. */
static bool compose_step(draft *d, bool init) {
  const int k = (int)below(EW_KERNEL_COUNT);
  if (is_jump(k)) return false; /* compose_jump */
  const ew_kernel *kernel = &ew_kernels[k];
  int32_t params[MAX_PARAMS] = {0};
  ew_reach reach[EW_MAX_OPERANDS];
  bool empty = false;
  int tries = 0;
  do {
    if (++tries > 2000) return false;
    guess(k, params);
  } while (work_of(k, params) > MAX_WORK / 4 ||
           ew_code.of[k].check(params, reach, &empty) != EW_CHECKED || (empty && !one_in(50)));
  if (empty) memset(reach, 0, sizeof reach);

  ew_patch patch = {0};
  const bool patched =
      d->n_registers && one_in(3) && !empty && follow_register(d, k, params, reach, &patch);

  ew_operand operands[EW_MAX_OPERANDS];
  for (int i = 0; i < kernel->n_operands; i++) {
    const bool output = kernel->outputs >> i & 1;
    if ((reach[i].hi - reach[i].lo) * reach[i].size > (1 << 22)) return false;
    operands[i] = (ew_operand){EW_NONE, 0, 0, 0};
    if ((kernel->optional >> i & 1) && one_in(3)) continue;
    if (!place(d, &reach[i], output, &operands[i])) return false;
    if (output && !patched) place_over_input(d, kernel, reach, operands, i);
  }
  if (d->n_steps == sizeof d->steps / sizeof *d->steps) return false;
  draft_step *s = &d->steps[d->n_steps++];
  *s = (draft_step){(uint16_t)k, kernel->n_operands, patched, kernel->param_bytes, {0}, {patch},
                    {{0}}};
  memcpy(s->params, params, kernel->param_bytes);
  memcpy(s->operands, operands, kernel->n_operands * sizeof *operands);
  d->n_init += init;
  kernels[k].composed++;
  return true;
}

/* Appends a step that jumps, whose operands are single numbers in the constants. */
static draft_step *compose_jump(draft *d, int k, int32_t counter, int32_t trips) {
  if (d->n_steps == sizeof d->steps / sizeof *d->steps) return NULL;
  draft_step *s = &d->steps[d->n_steps++];
  *s = (draft_step){.kernel = (uint16_t)k,
                    .n_operands = ew_kernels[k].n_operands,
                    .param_bytes = ew_kernels[k].param_bytes,
                    .params = {counter, 0, trips}};
  for (int i = 0; i < s->n_operands; i++) {
    const size_t bytes = k != EW_KERNEL_BRANCH && i == 0 ? 8 : 1; /* a limit, or a condition */
    s->operands[i] = (ew_operand){EW_NONE, 0, 0, 0};
    if (one_in(2) || d->const_bytes + bytes > sizeof d->constants) continue;
    s->operands[i] = (ew_operand){EW_CONST, 0, (int64_t)d->const_bytes, 0};
    d->const_bytes += bytes;
  }
  kernels[k].composed++;
  return s;
}

/* Appends random steps, and jumps over some of them and back to some of them. */
static void compose_steps(draft *d, uint32_t wanted, uint32_t counters) {
  const uint32_t first_counter = d->n_registers - counters;
  uint32_t begun[2], n_begun = 0, over = 0;
  draft_step *branch = NULL;
  for (uint32_t i = 0; i < wanted; i++) {
    if (!branch && one_in(6)) branch = compose_jump(d, EW_KERNEL_BRANCH, -1, 0), over = d->n_steps;
    if (n_begun < counters && one_in(2)) {
      const uint32_t c = first_counter + n_begun;
      begun[n_begun++] = d->n_steps;
      compose_jump(d, EW_KERNEL_LOOP_BEGIN, (int32_t)c, (int32_t)d->registers[c].max + 1);
    }
    compose_step(d, false);
  }
  while (n_begun) {
    draft_step *loop = &d->steps[begun[--n_begun]];
    const uint32_t c = first_counter + n_begun;
    draft_step *again =
        compose_jump(d, EW_KERNEL_LOOP_END, (int32_t)c, (int32_t)d->registers[c].max + 1);
    loop->params[1] = again ? again->params[1] = (int32_t)(again - loop) : 0;
  }
  if (branch) branch->params[1] = (int32_t)(d->n_steps - over);
}

/* Appends a register that follows from others; it grows with each of them. */
static void add_derived(draft *d) {
  ew_register_entry r = {.a = below(d->n_registers), .b = below(d->n_registers)};
  r.of_ab = below(2), r.of_a = below(3), r.of_b = below(3), r.add = below(4);
  r.divisor = 1 + below(3);
  const ew_register_entry *a = &d->registers[r.a], *b = &d->registers[r.b];
  r.min = (r.of_ab * a->min * b->min + r.of_a * a->min + r.of_b * b->min + r.add) / r.divisor;
  r.max = (r.of_ab * a->max * b->max + r.of_a * a->max + r.of_b * b->max + r.add) / r.divisor;
  d->registers[d->n_registers++] = r;
}

static size_t compose(uint8_t *plan) {
  static draft d;
  d.const_bytes = 0, d.n_registers = d.n_slots = d.n_init = d.n_steps = 0, d.arena = 0;
  for (d.n_registers = 0; d.n_registers < 4 && one_in(2); d.n_registers++) {
    const int64_t least = (int64_t)below(3);
    d.registers[d.n_registers] = (ew_register_entry){.min = least, .max = least + below(6)};
  }
  /* as MAX_BASES of plan.c: more lengths than that and a derived register may be refused */
  const uint32_t counters = one_in(3) ? 1 + below(2) : 0;
  const bool derives = d.n_registers > 0 && d.n_registers + counters <= 3;
  for (uint32_t i = 0; derives && i < 2 && one_in(3); i++) add_derived(&d);
  for (uint32_t i = 0; i < counters; i++)
    d.registers[d.n_registers++] = (ew_register_entry){.max = below(6), .divisor = EW_COUNTER};
  if (one_in(3)) compose_step(&d, true);
  compose_steps(&d, 1 + below(4), counters);
  fill_random(d.constants, d.const_bytes);
  return write_draft(&d, plan);
}

static void run(ew_engine *engine) {
  static uint8_t plan[MAX_PLAN + 64];
  size_t n;
  const bool from_seed = n_seeds && one_in(3);
  if (from_seed) {
    const fuzz_seed *s = &seeds[below(n_seeds)];
    memcpy(plan, s->bytes, n = s->n);
  } else
    n = compose(plan);
  const bool changed = !one_in(8);
  for (uint32_t m = changed ? 1 + below(one_in(4) ? 8 : 2) : 0; m; m--) n = mutate(plan, n);
  try_plan(engine, plan, n, !changed && !from_seed);
}

int main(int argc, char **argv) { return fuzz(argc, argv, run, true); }
