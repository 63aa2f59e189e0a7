/* The plan loader: checks everything about a plan that can be checked before it runs.
 *
 * A step that depends on registers is checked at every combination of the smallest and largest
 * values of lengths and counters, so that a plan that cannot work is rejected at load time.
 * This does not prove the values in between (a reach need not be linear in all parameters), so vm.c
 * checks such a step again with the actual values after a register has changed. */
#include "vm.h"
#include <string.h>

enum {
  MAX_STEP_REGISTERS = 6, /* lengths and counters that one step may depend on */
  MAX_BASES = 3,          /* the same for a step that uses registers that follow from others */
  MAX_DERIVED = 1024      /* registers of a plan that follow from others */
};

typedef struct {
  int64_t lo, hi;
} extent; /* bytes [lo, hi) of a buffer; empty if lo == hi */

int32_t ew_fail(ew_engine *e, int32_t code, int64_t step, int64_t operand, int32_t kernel,
                int64_t detail) {
  e->error = (ew_error){code, (int32_t)step, (int32_t)operand, kernel, detail};
  return code;
}

static int32_t step_fail(ew_plan *p, const ew_step *s, int32_t code, int64_t operand,
                         int64_t detail) {
  return ew_fail(p->engine, code, s - p->steps, operand, s->id, detail);
}

/* *out = registers[reg] * scale + add; false on overflow */
static bool linear(const int64_t *registers, uint32_t reg, int64_t scale, int64_t add,
                   int64_t *out) {
  int64_t product;
  return !__builtin_mul_overflow(registers[reg], scale, &product) &&
         !__builtin_add_overflow(product, add, out);
}

static uint64_t buffer_bytes(const ew_plan *p, uint32_t buffer) {
  return buffer == EW_ARENA   ? p->arena_bytes
         : buffer == EW_CONST ? p->const_bytes
                              : p->slots[buffer - EW_SLOT0].room;
}

/* Checks what no register changes: required operands are present, buffers exist, outputs are
 * writable. */
static int32_t check_operands(ew_plan *p, ew_step *s, uint32_t index) {
  for (int i = 0; i < s->kernel->n_operands; i++) {
    const ew_operand *o = &s->operands[i];
    if (o->buffer == EW_NONE) {
      if (!(s->kernel->optional >> i & 1)) return step_fail(p, s, EW_E_KERNEL, i, 0);
      continue;
    }
    bool output = s->kernel->outputs >> i & 1;
    if (o->buffer >= EW_SLOT0) {
      if (o->buffer - EW_SLOT0 >= p->n_slots) return step_fail(p, s, EW_E_BOUNDS, i, o->buffer);
      ew_slot *slot = &p->slots[o->buffer - EW_SLOT0];
      if (output && !slot->writable) return step_fail(p, s, EW_E_READONLY, i, o->buffer);
      if (slot->grows) s->registers = true; /* checked again when other memory is bound */
      if (index >= p->n_init_steps)
        slot->in_steps = true;
      else {
        if (slot->init_begin == slot->init_end) slot->init_begin = index;
        slot->init_end = index + 1;
      }
    } else if (output && o->buffer == EW_CONST)
      return step_fail(p, s, EW_E_READONLY, i, o->buffer);
    if (o->reg > p->n_registers) return step_fail(p, s, EW_E_REGISTER, i, o->reg);
  }
  return EW_OK;
}

static bool extent_of(const ew_operand *o, const ew_reach *r, const int64_t *registers, extent *e) {
  int64_t at = o->offset, lo, hi;
  if (o->reg && !linear(registers, o->reg - 1, o->scale, o->offset, &at)) return false;
  return !__builtin_mul_overflow(r->lo, r->size, &lo) &&
         !__builtin_mul_overflow(r->hi, r->size, &hi) && !__builtin_add_overflow(at, lo, &e->lo) &&
         !__builtin_add_overflow(at, hi, &e->hi);
}

int32_t ew_step_check(ew_plan *p, ew_step *s, const int64_t *registers) {
  for (int i = 0; i < s->n_patches; i++) {
    int64_t value;
    if (!linear(registers, s->patches[i].reg, s->patches[i].scale, s->patches[i].add, &value) ||
        value != (int32_t)value)
      return step_fail(p, s, EW_E_PARAM, -1, s->patches[i].field);
    s->params[s->patches[i].field] = (int32_t)value;
  }
  for (int i = 0; i < EW_VARIANT_COUNT; i++) {
    if (ew_code.variants[i].kernel != s->id || ew_code.variants[i].values == UINT64_MAX) continue;
    const int32_t value = s->params[ew_code.variants[i].word];
    if (value < 0 || value > 63 || !(ew_code.variants[i].values >> value & 1))
      return step_fail(p, s, EW_E_ABSENT, -1, value);
  }
  ew_reach reach[EW_MAX_OPERANDS];
  extent at[EW_MAX_OPERANDS];
  int32_t rule = s->code->check(s->params, reach, &s->empty);
  if (rule >= 0) return step_fail(p, s, EW_E_PARAM, -1, rule);
  if (rule == EW_CHECK_OVERFLOW) return step_fail(p, s, EW_E_BOUNDS, -1, 0);
  if (s->empty) return EW_OK;
  for (int i = 0; i < s->kernel->n_operands; i++) {
    const ew_operand *o = &s->operands[i];
    if (o->buffer == EW_NONE) continue;
    if (!extent_of(o, &reach[i], registers, &at[i]) || at[i].lo < 0 || at[i].hi < at[i].lo ||
        (uint64_t)at[i].hi > buffer_bytes(p, o->buffer))
      return step_fail(p, s, EW_E_BOUNDS, i, o->buffer);
  }
  /* An output may overlap no other operand in its buffer, except an input that it may replace,
   * which must then be at exactly the same place. */
  for (int i = 0; i < s->kernel->n_operands; i++)
    for (int j = 0; (s->kernel->outputs >> i & 1) && j < s->kernel->n_operands; j++) {
      if (j == i || s->operands[i].buffer == EW_NONE ||
          s->operands[i].buffer != s->operands[j].buffer)
        continue;
      if (at[i].hi <= at[j].lo || at[j].hi <= at[i].lo || at[i].lo == at[i].hi ||
          at[j].lo == at[j].hi)
        continue;
      if ((s->kernel->inplace[i] >> j & 1) && at[i].lo == at[j].lo && at[i].hi == at[j].hi &&
          reach[i].lo == reach[j].lo && reach[i].size == reach[j].size)
        continue;
      return step_fail(p, s, EW_E_ALIAS, i, j);
    }
  return EW_OK;
}

bool ew_derive(const ew_plan *p, int64_t *registers, uint32_t reg) {
  const ew_register_entry *r = &p->limits[reg];
  if (!r->divisor) return true;
  const int64_t a = registers[r->a], b = registers[r->b];
  int64_t product, of_a, of_b, sum;
  if (__builtin_mul_overflow(a, b, &product) ||
      __builtin_mul_overflow(product, r->of_ab, &product) ||
      __builtin_mul_overflow(a, r->of_a, &of_a) || __builtin_mul_overflow(b, r->of_b, &of_b) ||
      __builtin_add_overflow(product, of_a, &sum) || __builtin_add_overflow(sum, of_b, &sum) ||
      __builtin_add_overflow(sum, r->add, &sum))
    return false;
  const int64_t value = sum / r->divisor - (sum % r->divisor < 0);
  if (value < r->min || value > r->max) return false;
  registers[reg] = value;
  return true;
}

/* Registers that a step depends on, and those that these follow from. */
typedef struct {
  uint32_t lengths[MAX_STEP_REGISTERS], n_lengths;
  uint64_t derived[MAX_DERIVED / 64]; /* a bit for each register from ew_plan.n_lengths on */
  uint32_t first, end;                /* range of the words that are not 0 */
} used_registers;

static int32_t add_used(const ew_plan *p, used_registers *u, uint32_t reg) {
  if (reg >= p->n_lengths && reg < p->n_computed) {
    const uint32_t i = (reg - p->n_lengths) / 64;
    u->derived[i] |= UINT64_C(1) << (reg - p->n_lengths) % 64;
    if (u->first > i) u->first = i;
    if (u->end < i + 1) u->end = i + 1;
    return EW_OK;
  }
  for (uint32_t k = 0; k < u->n_lengths; k++)
    if (u->lengths[k] == reg) return EW_OK;
  if (u->n_lengths == MAX_STEP_REGISTERS) return EW_E_REGISTER;
  u->lengths[u->n_lengths++] = reg;
  return EW_OK;
}

static bool is_used(const used_registers *u, uint32_t derived) {
  return u->derived[derived / 64] >> derived % 64 & 1;
}

/* Finds the registers of a step. Derived registers come after the ones they depend on. */
static int32_t find_used(ew_plan *p, const ew_step *s, used_registers *u) {
  const uint32_t total = s->n_patches + (uint32_t)s->kernel->n_operands;
  for (uint32_t i = 0; i < total; i++) {
    const ew_operand *o = i < s->n_patches ? NULL : &s->operands[i - s->n_patches];
    if (o && (o->buffer == EW_NONE || !o->reg)) continue;
    const int32_t code = add_used(p, u, o ? o->reg - 1 : s->patches[i].reg);
    if (code) return code;
  }
  for (uint32_t i = u->end * 64; i-- > 0;) {
    if (!is_used(u, i)) continue;
    const ew_register_entry *r = &p->limits[p->n_lengths + i];
    int32_t code = add_used(p, u, r->a);
    if (!code) code = add_used(p, u, r->b);
    if (code) return code;
  }
  return u->end && u->n_lengths > MAX_BASES ? EW_E_REGISTER : EW_OK;
}

/* Checks the step at every combination of the ends of the ranges of the lengths that it depends on.
 */
static int32_t check_ends(ew_plan *p, ew_step *s) {
  used_registers u = {.first = MAX_DERIVED / 64};
  const int32_t found = find_used(p, s, &u);
  if (found) return step_fail(p, s, found, -1, u.n_lengths);
  s->registers |= u.n_lengths > 0;
  for (uint32_t ends = 0; ends < 1u << u.n_lengths; ends++) {
    for (uint32_t k = 0; k < u.n_lengths; k++) {
      const ew_register_entry *r = &p->limits[u.lengths[k]];
      p->registers[u.lengths[k]] = ends >> k & 1 ? r->max : r->min;
    }
    for (uint32_t i = u.first * 64; i < u.end * 64; i++)
      if (is_used(&u, i) && !ew_derive(p, p->registers, p->n_lengths + i))
        return step_fail(p, s, EW_E_REGISTER, -1, p->n_lengths + i);
    int32_t code = ew_step_check(p, s, p->registers);
    if (code) return code;
  }
  return EW_OK;
}

/* Parses the step at offset *at and advances *at past it. */
static int32_t load_step(ew_plan *p, uint32_t index, uint64_t *at, uint64_t end) {
  ew_step *s = &p->steps[index];
  ew_engine *e = p->engine;
  if (end - *at < sizeof(ew_step_header))
    return ew_fail(e, EW_E_FORMAT, index, -1, -1, (int64_t)*at);
  uint8_t *bytes = p->bytes + *at;
  const ew_step_header *h = (const ew_step_header *)bytes;
  if (h->kernel >= EW_KERNEL_COUNT) return ew_fail(e, EW_E_KERNEL, index, -1, h->kernel, 0);
  s->id = h->kernel, s->kernel = &ew_kernels[h->kernel], s->code = &ew_code.of[h->kernel];
  if (!s->code->run) return step_fail(p, s, EW_E_ABSENT, -1, -1);
  if (h->param_bytes != s->kernel->param_bytes || h->n_operands != s->kernel->n_operands)
    return step_fail(p, s, EW_E_KERNEL, -1, h->param_bytes);
  uint64_t patches_at = sizeof *h + ((uint64_t)h->param_bytes + 7) / 8 * 8,
           operands_at = patches_at + h->n_patches * sizeof(ew_patch);
  uint64_t size = operands_at + h->n_operands * sizeof(ew_operand);
  if (h->step_bytes != size || size > end - *at)
    return step_fail(p, s, EW_E_FORMAT, -1, (int64_t)*at);
  s->params = (int32_t *)(bytes + sizeof *h);
  s->patches = (const ew_patch *)(bytes + patches_at), s->n_patches = h->n_patches;
  s->operands = (const ew_operand *)(bytes + operands_at);
  for (int i = 0; i < s->n_patches; i++) {
    if (s->patches[i].field >= h->param_bytes / 4)
      return step_fail(p, s, EW_E_KERNEL, -1, s->patches[i].field);
    if (s->patches[i].reg >= p->n_registers)
      return step_fail(p, s, EW_E_REGISTER, -1, s->patches[i].reg);
  }
  *at += size;
  int32_t code = check_operands(p, s, index);
  return code ? code : check_ends(p, s);
}

/* Checks that a section of `count` items of `size` bytes at offset `at` starts at or after *end and
 * fits the plan; advances *end past it. Sections come in the order of the header and do not
 * overlap. */
static bool section(const ew_plan_header *h, uint64_t *end, uint64_t at, uint64_t count,
                    uint64_t size) {
  if (at % 16 || at < *end || at > h->total_bytes || count > (h->total_bytes - at) / size)
    return false;
  *end = at + count * size;
  return true;
}

static void *zeros(uint64_t count, uint64_t size) {
  return count * size > SIZE_MAX / 2 ? NULL : ew_alloc((size_t)(count * size));
}

/* Checks the ranges of the registers, and their order: lengths, derived registers in dependency
 * order, counters. */
static int32_t check_registers(ew_plan *p) {
  for (uint32_t i = 0; i < p->n_registers; i++) {
    const ew_register_entry *r = &p->limits[i];
    const bool length = !r->divisor, derived = r->divisor > 0;
    if (length && p->n_lengths == i) p->n_lengths++, p->n_computed++;
    if (derived && p->n_computed == i) p->n_computed++;
    if (r->min > r->max || r->divisor < EW_COUNTER || length != (i < p->n_lengths) ||
        derived != (i >= p->n_lengths && i < p->n_computed) ||
        (derived && (r->a >= i || r->b >= i || i - p->n_lengths >= MAX_DERIVED)) ||
        (!length && !derived && r->min))
      return ew_fail(p->engine, EW_E_REGISTER, -1, i, -1, r->min);
  }
  return EW_OK;
}

/* Makes the engine's arena at least so large. Its contents last for one run only: nothing is
 * copied, and the old block is freed first. */
static int32_t widen_arena(ew_engine *e, uint64_t bytes) {
  if (bytes <= e->arena_bytes) return EW_OK;
  ew_free(e->arena);
  e->paused = NULL;
  e->arena = ew_alloc((size_t)bytes);
  const uint64_t before = e->arena_bytes;
  e->arena_bytes = bytes;
  if (e->arena) return EW_OK;
  e->arena = ew_alloc((size_t)before);
  e->arena_bytes = e->arena ? before : 0;
  return ew_fail(e, EW_E_MEMORY, -1, -1, -1, (int64_t)bytes);
}

static int32_t load(ew_plan *p, const void *bytes, size_t n) {
  ew_engine *e = p->engine;
  ew_plan_header h;
  if (n < sizeof h) return ew_fail(e, EW_E_FORMAT, -1, -1, -1, (int64_t)n);
  memcpy(&h, bytes, sizeof h);
  if (memcmp(h.magic, EW_PLAN_MAGIC, sizeof h.magic)) return ew_fail(e, EW_E_FORMAT, -1, -1, -1, 0);
  if (h.table_hash != EW_TABLE_HASH) return ew_fail(e, EW_E_TABLE, -1, -1, -1, h.table_hash);
  uint64_t end = sizeof h;
  if (h.total_bytes > n) return ew_fail(e, EW_E_FORMAT, -1, -1, -1, (int64_t)n);
  if (!section(&h, &end, h.registers_at, h.n_registers, sizeof(ew_register_entry)))
    return ew_fail(e, EW_E_FORMAT, -1, -1, -1, (int64_t)h.registers_at);
  if (!section(&h, &end, h.slots_at, h.n_slots, sizeof(ew_slot_entry)))
    return ew_fail(e, EW_E_FORMAT, -1, -1, -1, (int64_t)h.slots_at);
  if (!section(&h, &end, h.const_at, h.const_bytes, 1))
    return ew_fail(e, EW_E_FORMAT, -1, -1, -1, (int64_t)h.const_at);
  uint64_t n_steps = (uint64_t)h.n_init_steps + h.n_steps;
  if (!section(&h, &end, h.steps_at, n_steps, sizeof(ew_step_header)))
    return ew_fail(e, EW_E_FORMAT, -1, -1, -1, (int64_t)h.steps_at);
  if (h.arena_bytes > SIZE_MAX / 2)
    return ew_fail(e, EW_E_MEMORY, -1, -1, -1, (int64_t)h.arena_bytes);

  p->arena_bytes = h.arena_bytes, p->const_bytes = h.const_bytes;
  p->n_registers = h.n_registers, p->n_slots = h.n_slots, p->n_init_steps = h.n_init_steps,
  p->n_steps = h.n_steps;
  p->bytes = zeros(h.total_bytes, 1);
  p->registers = zeros(h.n_registers, sizeof *p->registers);
  p->slots = zeros(h.n_slots, sizeof *p->slots);
  p->fresh = zeros(h.n_slots, sizeof *p->fresh);
  p->steps = zeros(n_steps, sizeof *p->steps);
  if (!p->bytes || !p->registers || !p->slots || !p->fresh || !p->steps)
    return ew_fail(e, EW_E_MEMORY, -1, -1, -1,
                   (int64_t)(h.total_bytes + h.n_registers * sizeof *p->registers +
                             h.n_slots * (sizeof *p->slots + sizeof *p->fresh) +
                             n_steps * sizeof *p->steps));
  memcpy(p->bytes, bytes, (size_t)h.total_bytes);
  p->n_bytes = h.total_bytes;
  p->constants = p->bytes + h.const_at;

  p->limits = (const ew_register_entry *)(p->bytes + h.registers_at);
  const int32_t ranges = check_registers(p);
  if (ranges) return ranges;
  const ew_slot_entry *slots = (const ew_slot_entry *)(p->bytes + h.slots_at);
  for (uint32_t i = 0; i < p->n_slots; i++) {
    if (slots[i].bytes > INT64_MAX)
      return ew_fail(e, EW_E_FORMAT, -1, i, -1, (int64_t)(h.slots_at + i * sizeof *slots));
    p->slots[i] = (ew_slot){.bytes = slots[i].bytes,
                            .room = slots[i].bytes,
                            .writable = slots[i].flags & EW_SLOT_WRITABLE,
                            .grows = slots[i].flags & EW_SLOT_GROWS};
  }
  uint64_t at = h.steps_at;
  for (uint32_t i = 0; i < n_steps; i++) {
    int32_t code = load_step(p, i, &at, h.total_bytes);
    if (code) return code;
  }
  p->max_trips = EW_MAX_TRIPS;
  const int32_t jumps = ew_check_jumps(p);
  if (jumps) return jumps;
  p->version = 1; /* register-dependent steps have not been checked for version 1 */
  for (uint32_t i = 0; i < p->n_registers; i++) {
    const ew_register_entry *r = &p->limits[i];
    if (r->divisor <= 0)
      p->registers[i] = r->min > 0 ? r->min : r->max < 0 ? r->max : 0;
    else if (!ew_derive(p, p->registers, i))
      return ew_fail(e, EW_E_REGISTER, -1, i, -1, 0);
  }

  return widen_arena(e, h.arena_bytes);
}

EW_API(ew_plan_load)
int32_t ew_plan_load(ew_engine *e, const void *bytes, size_t n, ew_plan **out) {
  *out = NULL;
  ew_plan *p = ew_alloc(sizeof *p);
  if (!p) return ew_fail(e, EW_E_MEMORY, -1, -1, -1, sizeof *p);
  p->engine = e;
  int32_t code = load(p, bytes, n);
  if (code)
    ew_plan_free(p);
  else
    *out = p;
  return code;
}

EW_API(ew_plan_free) void ew_plan_free(ew_plan *p) {
  if (!p) return;
  if (p->engine->paused == p) p->engine->paused = NULL;
  ew_free(p->bytes);
  ew_free(p->registers);
  ew_free(p->slots);
  ew_free(p->fresh);
  ew_free(p->steps);
  ew_free(p);
}
