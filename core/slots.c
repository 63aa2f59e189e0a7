/* Slots of a plan: binding to memory, and the check that writable memory is not shared.
 *
 * The loader proves for each buffer that outputs overlap nothing they must not overlap, and kernels
 * rely on it. The proof treats slots as separate buffers, so they must be separate memory as well;
 * hosts bind addresses of files, caches and pools. Read-only slots may overlap each other. Slots
 * bound since the last check are compared with all others before the next run; a host that binds
 * nothing, or the same addresses again, pays nothing. */
#include "vm.h"

enum { FEW = 8 }; /* up to this many fresh slots are compared one by one; more are sorted */

static uintptr_t begin_of(const ew_slot *s) { return (uintptr_t)s->data; }
/* ew_plan_bind has checked that the sum does not wrap */
static uintptr_t end_of(const ew_slot *s) { return (uintptr_t)s->data + (uintptr_t)s->room; }
/* Pages are read-only memory of the host. */
static bool is_there(const ew_slot *s) { return s->bound && s->room && !s->pages; }

static bool overlap(uintptr_t a, uintptr_t a_end, uintptr_t b, uintptr_t b_end) {
  return a < b_end && b < a_end;
}

EW_API(ew_plan_bind) int32_t ew_plan_bind(ew_plan *p, uint32_t slot, void *data, size_t bytes) {
  const bool none = !data && !bytes;
  if (slot >= p->n_slots || (!none && ((bytes < p->slots[slot].bytes && !p->slots[slot].grows) ||
                                       !data || (uintptr_t)data > UINTPTR_MAX - bytes)))
    return ew_fail(p->engine, EW_E_ARGUMENT, -1, slot, -1, (int64_t)bytes);
  ew_slot *s = &p->slots[slot];
  const uint64_t room = none || bytes > s->bytes ? s->bytes : bytes;
  if (!none && (s->data != data || s->room != room || !s->bound) && !s->fresh)
    s->fresh = true, p->fresh[p->n_fresh++] = slot;
  if (s->room != room) s->room = room, p->version++; /* steps that use it are checked again */
  s->data = data, s->bound = !none, s->pages = NULL;
  return EW_OK;
}

EW_API(ew_plan_pages)
int32_t ew_plan_pages(ew_plan *p, uint32_t slot, ew_page_entry *pages, uint32_t count) {
  bool good = slot < p->n_slots && pages && count && count <= INT32_MAX &&
              !p->slots[slot].writable && !p->slots[slot].grows &&
              p->slots[slot].bytes % count == 0;
  for (uint32_t i = 0; good && i < p->n_init_steps + p->n_steps; i++)
    for (int k = 0; k < p->steps[i].kernel->n_operands; k++) {
      const ew_operand *o = &p->steps[i].operands[k];
      if (o->buffer == EW_SLOT0 + slot)
        good = good && p->steps[i].kernel->pages >> k & 1 && !o->offset && !o->reg;
    }
  if (!good) return ew_fail(p->engine, EW_E_ARGUMENT, -1, slot, -1, count);
  ew_slot *s = &p->slots[slot];
  s->data = NULL, s->room = s->bytes, s->bound = true, s->pages = pages, s->n_pages = count;
  p->version++;
  return EW_OK;
}

int32_t ew_page(ew_context *c, int32_t operand, void *base, int32_t number, int64_t stride,
                int64_t bytes, void **out) {
  const ew_step *step = c->step; /* NULL: a kernel that runs without a plan, as in tests */
  const uint32_t buffer = step ? step->operands[operand].buffer : EW_NONE;
  const uint32_t slot = buffer - EW_SLOT0;
  const ew_slot *s = buffer >= EW_SLOT0 && buffer != EW_NONE ? &c->plan->slots[slot] : NULL;
  if (!s || !s->pages) {
    *out = base ? (char *)base + number * stride : NULL;
    return EW_OK;
  }
  const int64_t page = (int64_t)(s->bytes / s->n_pages);
  if ((uint32_t)number >= s->n_pages || stride != page || bytes > page) return EW_E_BOUNDS;
  *out = s->pages[number].data;
  s->pages[number].used = ++c->engine->uses;
  if (*out) return EW_OK;
  c->plan->slot = slot, c->plan->page = number;
  return EW_AWAY;
}

EW_API(ew_plan_slot_use) int32_t ew_plan_slot_use(const ew_plan *p, uint32_t slot) {
  return slot < p->n_slots
             ? (p->slots[slot].init_begin < p->slots[slot].init_end) + 2 * p->slots[slot].in_steps
             : 0;
}

EW_API(ew_plan_slot_init) uint32_t ew_plan_slot_init(const ew_plan *p, uint32_t slot, int32_t end) {
  return slot >= p->n_slots ? 0 : end ? p->slots[slot].init_end : p->slots[slot].init_begin;
}

static int32_t fail(const ew_plan *p, uint32_t slot, int64_t other) {
  return ew_fail(p->engine, EW_E_ALIAS, -1, slot, -1, other);
}

/* A slot must not overlap the arena nor, if it is writable, the plan's own bytes. */
static int32_t check_engine(const ew_plan *p, uint32_t slot) {
  const ew_slot *s = &p->slots[slot];
  const uintptr_t arena = (uintptr_t)p->engine->arena, plan = (uintptr_t)p->bytes;
  if (!is_there(s)) return EW_OK;
  if (overlap(begin_of(s), end_of(s), arena, arena + (uintptr_t)p->engine->arena_bytes))
    return fail(p, slot, EW_ALIAS_ARENA);
  if (s->writable && overlap(begin_of(s), end_of(s), plan, plan + (uintptr_t)p->n_bytes))
    return fail(p, slot, EW_ALIAS_PLAN);
  return EW_OK;
}

static int32_t check_one(const ew_plan *p, uint32_t slot) {
  const ew_slot *s = &p->slots[slot];
  if (!is_there(s)) return EW_OK;
  for (uint32_t i = 0; i < p->n_slots; i++) {
    const ew_slot *o = &p->slots[i];
    if (i != slot && (s->writable || o->writable) && is_there(o) &&
        overlap(begin_of(s), end_of(s), begin_of(o), end_of(o)))
      return fail(p, slot, i);
  }
  return EW_OK;
}

/* Heapsort: moves order[at] down the heap of n slots, which has the highest address at its root. */
static void sink(const ew_plan *p, uint32_t *order, uint32_t n, uint32_t at) {
  for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && begin_of(&p->slots[order[child + 1]]) > begin_of(&p->slots[order[child]]))
      child++;
    if (begin_of(&p->slots[order[at]]) >= begin_of(&p->slots[order[child]])) return;
    const uint32_t t = order[at];
    order[at] = order[child], order[child] = t;
  }
}

/* Compares all slots in address order. The list of fresh slots has room for this order. */
static int32_t check_all(ew_plan *p) {
  uint32_t n = 0, *order = p->fresh, last = 0, last_written = 0;
  for (uint32_t i = 0; i < p->n_slots; i++) {
    p->slots[i].fresh = true; /* until the check has succeeded */
    if (is_there(&p->slots[i])) order[n++] = i;
  }
  const uint32_t count = n;
  for (uint32_t i = n / 2; i-- > 0;) sink(p, order, n, i);
  while (n > 1) {
    const uint32_t t = order[0];
    order[0] = order[--n], order[n] = t;
    sink(p, order, n, 0);
  }
  /* largest end address so far, of all slots and of the writable ones */
  uintptr_t end = 0, written = 0;
  int32_t code = EW_OK;
  for (uint32_t i = 0; i < count && !code; i++) {
    const ew_slot *s = &p->slots[order[i]];
    if (begin_of(s) < (s->writable ? end : written))
      code = fail(p, order[i], s->writable ? last : last_written);
    if (end_of(s) > end) end = end_of(s), last = order[i];
    if (s->writable && end_of(s) > written) written = end_of(s), last_written = order[i];
  }
  /* the check failed: list all slots as fresh again */
  for (uint32_t i = 0; i < p->n_slots; i++) order[i] = i;
  p->n_fresh = p->n_slots;
  return code;
}

int32_t ew_check_slots(ew_plan *p) {
  if (p->arena_seen != p->engine->arena) {
    for (uint32_t i = 0; i < p->n_slots; i++) {
      const int32_t code = check_engine(p, i);
      if (code) return code;
    }
    p->arena_seen = p->engine->arena;
  }
  for (uint32_t i = 0; i < p->n_fresh; i++) {
    const int32_t code = check_engine(p, p->fresh[i]);
    if (code) return code;
  }
  if (p->n_fresh > FEW) {
    const int32_t code = check_all(p);
    if (code) return code;
  } else
    for (uint32_t i = 0; i < p->n_fresh; i++) {
      const int32_t code = check_one(p, p->fresh[i]);
      if (code) return code;
    }
  while (p->n_fresh) p->slots[p->fresh[--p->n_fresh]].fresh = false;
  return EW_OK;
}
