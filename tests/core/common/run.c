#include "fuzz.h"

static uint64_t digest(const uint8_t *p, int64_t n) {
  uint64_t h = 1469598103934665603u, word;
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    memcpy(&word, p + i, 8);
    h = (h ^ word) * 1099511628211u, h ^= h >> 29;
  }
  for (; i < n; i++) h = (h ^ p[i]) * 1099511628211u;
  return h;
}

static uint8_t *start_of(ew_plan *p, const ew_operand *o) {
  uint8_t *base = o->buffer == EW_ARENA   ? p->engine->arena
                  : o->buffer == EW_CONST ? (uint8_t *)p->constants
                                          : p->slots[o->buffer - EW_SLOT0].data;
  return base + o->offset + (o->reg ? p->registers[o->reg - 1] * o->scale : 0);
}

uint64_t loaded, ran, failed, skipped, stopped;

static int32_t run_one(ew_plan *p, uint32_t step) {
  return step < p->n_init_steps ? ew_plan_init_steps(p, step, 1)
                                : ew_plan_run_steps(p, step - p->n_init_steps, 1, NULL);
}

void run_guarded(ew_plan *p, uint32_t step) {
  ew_step *s = &p->steps[step];
  const ew_kernel *kernel = s->kernel;
  ew_reach reach[EW_MAX_OPERANDS];
  uint64_t before[EW_MAX_OPERANDS] = {0};
  /* A value between the ends of a register's range may be invalid (a size of 4 and 8, but not 5):
   * the VM must reject it as well. */
  if (ew_step_check(p, s, p->registers) != EW_OK) {
    if (run_one(p, step) == EW_OK) die("the VM ran a step that its check refuses", name_of(s->id));
    skipped++;
    return;
  }
  if (s->empty || work_of(s->id, s->params) > MOST_WORK) {
    skipped++;
    return;
  }
  bool empty;
  if (s->code->check(s->params, reach, &empty) != EW_CHECKED)
    die("the check changed its mind", name_of(s->id));
  for (int i = 0; i < kernel->n_operands; i++) {
    const ew_operand *o = &s->operands[i];
    const int64_t bytes = (reach[i].hi - reach[i].lo) * reach[i].size;
    if (o->buffer == EW_NONE || kernel->outputs >> i & 1 || bytes > 1 << 16) continue;
    before[i] = digest(start_of(p, o) + reach[i].lo * reach[i].size, bytes);
  }
  const uint64_t arena =
      p->arena_bytes + 256 < p->engine->arena_bytes ? p->arena_bytes + 256 : p->engine->arena_bytes;
  POISON(p->engine->arena, arena);
  POISON(p->constants, p->const_bytes);
  for (int i = 0; i < kernel->n_operands; i++)
    if (s->operands[i].buffer == EW_ARENA || s->operands[i].buffer == EW_CONST)
      UNPOISON(start_of(p, &s->operands[i]) + reach[i].lo * reach[i].size,
               (size_t)((reach[i].hi - reach[i].lo) * reach[i].size));
  const int32_t code = run_one(p, step);
  UNPOISON(p->engine->arena, arena);
  UNPOISON(p->constants, p->const_bytes);
  for (int i = 0; i < kernel->n_operands; i++) {
    const ew_operand *o = &s->operands[i];
    const int64_t bytes = (reach[i].hi - reach[i].lo) * reach[i].size;
    if (o->buffer == EW_NONE || kernel->outputs >> i & 1 || bytes > 1 << 16) continue;
    bool replaced = false;
    for (int j = 0; j < kernel->n_operands; j++)
      replaced |= (kernel->outputs >> j & 1) && s->operands[j].buffer == o->buffer &&
                  start_of(p, &s->operands[j]) + reach[j].lo * reach[j].size ==
                      start_of(p, o) + reach[i].lo * reach[i].size;
    if (!replaced && before[i] != digest(start_of(p, o) + reach[i].lo * reach[i].size, bytes))
      die("wrote to an operand it may only read", name_of(s->id));
  }
  if (code != EW_OK && code != EW_E_PARAM && code != EW_E_INDEX && code != EW_E_KERNEL)
    die("an error no kernel may have", name_of(s->id));
  if (code == EW_OK)
    ran++, kernels[s->id].ran++;
  else
    failed++, kernels[s->id].refused++;
}

/* ---- memory of the slots ---- */

enum { OWN, SHARED, UNALIGNED, SMALL };

/* True if two bound slots overlap and one of them is writable, by comparing all pairs. */
static bool some_overlap(const ew_plan *p) {
  for (uint32_t i = 0; i < p->n_slots; i++)
    for (uint32_t j = 0; j < i; j++) {
      const ew_slot *a = &p->slots[i], *b = &p->slots[j];
      const uintptr_t x = (uintptr_t)a->data, y = (uintptr_t)b->data;
      if (a->bound && b->bound && a->bytes && b->bytes && (a->writable || b->writable) &&
          x < y + b->bytes && y < x + a->bytes)
        return true;
    }
  return false;
}

/* Binds all slots, some of them twice; `held`: blocks to free. False if a slot that steps use was
 * left unbound. */
static bool bind_slots(ew_plan *p, uint8_t **held) {
  const uint32_t mode = one_in(4) ? 1 + below(3) : OWN;
  uint64_t total = 0;
  bool all = true;
  for (uint32_t i = 0; i < p->n_slots; i++) total += p->slots[i].bytes;
  uint8_t *shared = NULL;
  const bool few = one_in(2); /* only some slots share memory */
  if (mode == SHARED) {
    total = total / (1 + below(4)) + 64;
    held[p->n_slots] = shared = malloc(total);
    if (!shared) abort();
    memset(shared, 0, total), fill_random(shared, total);
  }
  /* twice, so that other slots are fresh and a rejected binding may become valid */
  for (int round = 0; round < 1 + (mode == SHARED && one_in(2)); round++)
    for (uint32_t i = 0; i < p->n_slots; i++) {
      const uint64_t bytes = p->slots[i].bytes;
      if (round && one_in(2)) continue;
      uint8_t *data;
      if (shared && bytes <= total && !(few && one_in(2)))
        data = shared + next() % (total - bytes + 1);
      else {
        const size_t off = mode == UNALIGNED ? below(16) : 0;
        free(held[i]);
        held[i] = malloc(bytes + off ? bytes + off : 1);
        if (!held[i]) abort();
        data = held[i] + off;
        memset(data, 0, bytes), fill_random(data, bytes);
      }
      if (mode == SMALL && bytes && one_in(3)) {
        const int32_t code = ew_plan_bind(p, i, data, bytes - 1 - next() % bytes);
        if (code != EW_E_ARGUMENT || p->slots[i].bound)
          die("bound to less than a slot's bytes", "bind");
        all = false;
      } else if (ew_plan_bind(p, i, data, bytes))
        die("bind", "slot");
    }
  return all;
}

/* The engine must detect the same overlaps as a comparison of all pairs. */
bool slots_are_right(ew_plan *p) {
  const bool overlap = some_overlap(p);
  const int32_t code = ew_check_slots(p), again = ew_check_slots(p);
  if (code != again || (code != EW_OK && code != EW_E_ALIAS))
    die("the check of slots changed its mind", "slots");
  if ((code == EW_E_ALIAS) != overlap)
    die(overlap ? "an overlap of slots was not seen" : "slots that do not overlap were refused",
        "slots");
  if (overlap && p->n_steps) {
    const ew_error *e = ew_last_error(p->engine);
    const ew_slot *a = &p->slots[e->operand], *b = &p->slots[e->detail];
    if (!(a->writable || b->writable) || (uintptr_t)a->data >= (uintptr_t)b->data + b->bytes ||
        (uintptr_t)b->data >= (uintptr_t)a->data + a->bytes)
      die("an error that names other slots", "slots");
  }
  return !overlap;
}

void try_plan(ew_engine *e, const uint8_t *bytes, size_t n, bool must_work) {
  ew_plan_header h = {0};
  memcpy(&h, bytes, n < sizeof h ? n : sizeof h);
  /* the allocation may or may not fail: not a finding */
  if (h.arena_bytes > MOST_BYTES && h.arena_bytes <= SIZE_MAX / 2) return;
  /* a copy of exact size, so that reads past its end are detected */
  uint8_t *copy = malloc(n ? n : 1);
  memcpy(copy, bytes, n);
  ew_plan *p;
  const int32_t code = ew_plan_load(e, copy, n, &p);
  free(copy);
  if ((code == EW_OK) != (p != NULL)) die("a plan with an error, or neither", "load");
  if (code != EW_OK) {
    const ew_error *error = ew_last_error(e);
    if (must_work) {
      fprintf(stderr, "code %d step %d operand %d detail %lld\n", error->code, error->step,
              error->operand, (long long)error->detail);
      die("a composed plan was refused", name_of(error->kernel));
    }
    if (error->code != code) die("another error than returned", "load");
    return;
  }
  loaded++;
  bool can_run = true;
  for (uint32_t i = 0; i < p->n_slots; i++) can_run &= p->slots[i].bytes <= MOST_BYTES;
  uint8_t **held = calloc(p->n_slots + (size_t)1, sizeof *held);
  if (!held) abort();
  if (can_run && p->n_slots <= 4096 && bind_slots(p, held) && slots_are_right(p)) {
    for (uint32_t i = 0; i < p->n_registers; i++) {
      const ew_register_entry *r = &p->limits[i];
      const uint64_t range = (uint64_t)r->max - (uint64_t)r->min;
      if (one_in(2) &&
          ew_plan_register(p, i, (int64_t)((uint64_t)r->min + (range ? next() % range : 0))))
        die("register", "");
    }
    for (uint32_t i = 0; i < p->n_init_steps + p->n_steps; i++) run_guarded(p, i);
  }
  for (uint32_t i = 0; i <= p->n_slots; i++) free(held[i]);
  free(held);
  ew_plan_free(p);
}
