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

/* Runs the steps of a region, which must end within the limit of iterations: in parts, or at once.
 */
static void run_region(ew_plan *p, uint32_t first) {
  const uint32_t end = p->steps[first].end;
  double work = 0;
  for (uint32_t i = first; i < end; i++)
    if (!is_jump(p->steps[i].id)) work += work_of(p->steps[i].id, p->steps[i].params);
  const uint32_t limit = below(one_in(4) ? 60 : 4);
  if (work * (limit + 1) > MAX_WORK) {
    skipped++;
    return;
  }
  ew_plan_trips(p, limit);
  int32_t code;
  if (first == p->n_init_steps && end == first + p->n_steps && one_in(2)) {
    uint32_t parts = 0;
    while ((code = ew_plan_run_some(p, 1 + below(3))) == EW_PAUSED)
      if (++parts > limit) die("a run that does not end", "jump");
  } else
    code = run_one(p, first);
  if (ew_plan_trips(p, limit) > limit) die("more iterations than are allowed", "jump");
  if (code != EW_OK && code != EW_E_PARAM && code != EW_E_INDEX && code != EW_E_KERNEL &&
      code != EW_E_BOUNDS && code != EW_E_ALIAS && code != EW_E_REGISTER && code != EW_E_TRIPS)
    die("an error no run may have", "jump");
  for (uint32_t i = first; i < end; i++)
    if (is_jump(p->steps[i].id))
      kernels[p->steps[i].id].ran += code == EW_OK,
          kernels[p->steps[i].id].refused += code != EW_OK;
}

void run_guarded(ew_plan *p, uint32_t step) {
  ew_step *s = &p->steps[step];
  if (s->end > step + 1 && !s->inside) run_region(p, step);
  if (is_jump(s->id)) return;
  s->end = step + 1, s->inside = false; /* by itself */
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
  if (s->empty || work_of(s->id, s->params) > MAX_WORK) {
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

/* ---- resolved steps ---- */

/* What a record says must be what the VM would compute, and lie inside the buffers. */
static void check_record(ew_plan *p, const ew_step *s, const uint8_t *record) {
  ew_resolved_step head;
  memcpy(&head, record, sizeof head);
  if (head.kernel != s->id || head.n_operands != s->kernel->n_operands ||
      head.param_bytes != s->kernel->param_bytes || !(head.flags & EW_STEP_EMPTY) != !s->empty ||
      !(head.flags & EW_STEP_REGISTERS) != !s->registers ||
      memcmp(record + sizeof head, s->params, head.param_bytes))
    die("a resolved step is not the step", name_of(s->id));
  for (int i = 0; i < head.n_operands; i++) {
    const ew_operand *o = &s->operands[i];
    ew_resolved_operand r;
    memcpy(&r, record + sizeof head + (head.param_bytes + 7) / 8 * 8 + (size_t)i * sizeof r,
           sizeof r);
    if (r.buffer != o->buffer) die("a resolved operand has another buffer", name_of(s->id));
    if (o->buffer == EW_NONE || s->empty) {
      if (r.offset || r.begin || r.end || r.element_bytes)
        die("a resolved operand that is not there", name_of(s->id));
      continue;
    }
    const uint64_t size = o->buffer == EW_ARENA   ? p->arena_bytes
                          : o->buffer == EW_CONST ? p->const_bytes
                                                  : p->slots[o->buffer - EW_SLOT0].bytes;
    if (r.begin < 0 || r.end < r.begin || (uint64_t)r.end > size)
      die("a resolved operand lies outside of its buffer", name_of(s->id));
    if (r.offset != o->offset + (o->reg ? p->registers[o->reg - 1] * o->scale : 0))
      die("a resolved operand lies elsewhere", name_of(s->id));
  }
}

/* Resolves all steps in pieces, into blocks of exactly their size. */
static void resolve_is_right(ew_plan *p) {
  const uint32_t n_steps = p->n_init_steps + p->n_steps;
  size_t bytes = 0;
  if (ew_plan_resolve(p, n_steps, 1, NULL, &bytes) != EW_E_ARGUMENT ||
      ew_plan_resolve(p, 1, UINT32_MAX, NULL, &bytes) != EW_E_ARGUMENT || bytes)
    die("steps were resolved that do not exist", "resolve");
  for (uint32_t first = 0, count; first < n_steps; first += count) {
    count = 1 + below(one_in(2) ? 2 : n_steps - first);
    if (count > n_steps - first) count = n_steps - first;
    if (ew_plan_resolve(p, first, count, NULL, &bytes)) die("resolve", "size");
    const size_t needed = bytes;
    uint8_t *out = malloc(needed);
    if (!out) abort();
    bytes = below((uint32_t)needed);
    if (ew_plan_resolve(p, first, count, out, &bytes) != EW_E_ARGUMENT || bytes != needed)
      die("resolved steps were written to less than their size", "resolve");
    const int32_t code = ew_plan_resolve(p, first, count, out, &bytes);
    int32_t expected = EW_OK;
    size_t at = 0;
    for (uint32_t i = first; i < first + count && !expected; i++) {
      ew_step *s = &p->steps[i];
      expected = ew_step_check(p, s, p->registers);
      if (expected) break;
      if (!code) check_record(p, s, out + at);
      ew_resolved_step head;
      if (!code) memcpy(&head, out + at, sizeof head), at += head.step_bytes;
    }
    if (code != expected) die("a step was resolved that cannot run, or the reverse", "resolve");
    if (!code && at != needed) die("resolved steps of another size", "resolve");
    free(out);
  }
}

/* ---- memory of the slots ---- */

enum { OWN, SHARED, UNALIGNED, SMALL };

/* True if two bound slots overlap and one of them is writable, by comparing all pairs. */
static bool some_overlap(const ew_plan *p) {
  for (uint32_t i = 0; i < p->n_slots; i++)
    for (uint32_t j = 0; j < i; j++) {
      const ew_slot *a = &p->slots[i], *b = &p->slots[j];
      const uintptr_t x = (uintptr_t)a->data, y = (uintptr_t)b->data;
      if (a->bound && b->bound && a->room && b->room && (a->writable || b->writable) &&
          x < y + b->room && y < x + a->room)
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
        if (p->slots[i].grows ? code != EW_OK : code != EW_E_ARGUMENT || p->slots[i].bound)
          die("bound to less than a slot's bytes", "bind");
        all &= p->slots[i].grows;
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
    if (!(a->writable || b->writable) || (uintptr_t)a->data >= (uintptr_t)b->data + b->room ||
        (uintptr_t)b->data >= (uintptr_t)a->data + a->room)
      die("an error that names other slots", "slots");
  }
  return !overlap;
}

void set_register(ew_plan *p, uint32_t reg, int64_t value) {
  const size_t size = p->n_registers * sizeof *p->registers;
  int64_t *before = malloc(size);
  if (!before) abort();
  memcpy(before, p->registers, size);
  if (ew_plan_register(p, reg, value)) {
    /* Lengths take all values of their range, unless what follows from them leaves its own. */
    if (reg < p->n_lengths && p->n_registers == p->n_lengths) die("register", "");
    if (memcmp(before, p->registers, size)) die("a refused value was kept", "register");
  } else if (reg >= p->n_lengths) {
    die("a value that follows from others was set", "register");
  }
  free(before);
}

/* Brings what a step asks for, in blocks of exact size, and sometimes takes away another page of
 * that slot. */
static void run_in_pages(ew_plan *p, uint32_t step) {
  int32_t code = run_one(p, step);
  for (int left = 100000; code == EW_AWAY; code = ew_plan_go_on(p)) {
    const ew_error *e = ew_last_error(p->engine);
    const uint32_t slot = (uint32_t)e->operand;
    if (slot >= p->n_slots || !p->slots[slot].pages || e->detail < 0 ||
        e->detail >= p->slots[slot].n_pages || p->slots[slot].pages[e->detail].data || !left--)
      die("asked for a page that is none, or is there", name_of(p->steps[step].id));
    ew_page_entry *pages = p->slots[slot].pages;
    const size_t bytes = (size_t)(p->slots[slot].bytes / p->slots[slot].n_pages);
    const uint32_t other = below(p->slots[slot].n_pages);
    free(pages[other].data), pages[other].data = NULL;
    pages[e->detail].data = malloc(bytes ? bytes : 1);
    if (!pages[e->detail].data) abort();
    fill_random(pages[e->detail].data, bytes);
  }
}

/* Runs the products of experts again with weights in pages. */
static void try_pages(ew_plan *p) {
  for (uint32_t i = 0; i < p->n_slots; i++) {
    const uint32_t count = 1 + below(8);
    ew_page_entry *pages = calloc(count, sizeof *pages);
    if (!pages) abort();
    if (ew_plan_pages(p, i, pages, count)) free(pages);
  }
  for (uint32_t i = 0; i < p->n_init_steps + p->n_steps; i++) {
    const ew_step *s = &p->steps[i];
    if (s->kernel->pages && ew_step_check(p, &p->steps[i], p->registers) == EW_OK && !s->empty &&
        work_of(s->id, s->params) <= MAX_WORK)
      run_in_pages(p, i);
  }
  for (uint32_t i = 0; i < p->n_slots; i++) {
    ew_page_entry *pages = p->slots[i].pages;
    for (uint32_t k = 0; pages && k < p->slots[i].n_pages; k++) free(pages[k].data);
    p->slots[i].pages = NULL, p->slots[i].bound = false;
    free(pages);
  }
}

void try_plan(ew_engine *e, const uint8_t *bytes, size_t n, bool must_work) {
  ew_plan_header h = {0};
  memcpy(&h, bytes, n < sizeof h ? n : sizeof h);
  /* the allocation may or may not fail: not a finding */
  if (h.arena_bytes > MAX_BYTES && h.arena_bytes <= SIZE_MAX / 2) return;
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
  for (uint32_t i = 0; i < p->n_slots; i++) can_run &= p->slots[i].bytes <= MAX_BYTES;
  uint8_t **held = calloc(p->n_slots + (size_t)1, sizeof *held);
  if (!held) abort();
  if (one_in(4)) resolve_is_right(p); /* needs no memory */
  if (can_run && p->n_slots <= 4096 && bind_slots(p, held) && slots_are_right(p)) {
    for (uint32_t i = 0; i < p->n_registers; i++) {
      const ew_register_entry *r = &p->limits[i];
      const uint64_t range = (uint64_t)r->max - (uint64_t)r->min;
      if (one_in(2)) set_register(p, i, (int64_t)((uint64_t)r->min + (range ? next() % range : 0)));
    }
    resolve_is_right(p);
    for (uint32_t i = p->n_computed; i < p->n_registers; i++)
      p->registers[i] = (int64_t)(next() % ((uint64_t)p->limits[i].max + 1)), p->version++;
    for (uint32_t i = 0; i < p->n_init_steps + p->n_steps; i++) run_guarded(p, i);
    if (one_in(2)) try_pages(p);
  }
  for (uint32_t i = 0; i <= p->n_slots; i++) free(held[i]);
  free(held);
  ew_plan_free(p);
}
