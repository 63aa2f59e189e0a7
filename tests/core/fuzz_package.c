/* Fuzzes packages: plans that share memory by the names of their slots, together with the table of
 * names, kinds and sizes by which a host allocates that memory. Both are changed at once, as a
 * hostile package does. The host of this program trusts the table entirely (real hosts check the
 * manifest first), so that the engine alone must detect what does not fit. It does what hosts do:
 * load all plans, bind, compute derived weights, switch between two sequences, replace an adapter.
 * Seeds: *.packed files of make_seeds.py. For usage see common/fuzz.h. */
#include "common/fuzz.h"

enum { WEIGHT, COMPUTED, CACHE, STATE, INPUT, OUTPUT, KINDS }; /* as in manifests */
enum { MAX_NAMES = 640, MAX_PLANS = 8, MAX_SLOTS = 640 };
enum { LARGE = 1 << 14 };
/* maximum size of the memory of a name, and of that of all names */
#define MAX_MEMORY (UINT64_C(1) << 19)
#define MAX_TOTAL (UINT64_C(1) << 21)

typedef struct {
  uint32_t kind, pad;
  uint64_t bytes, offset; /* offset: of a weight in the file */
} entry;
typedef struct {
  uint8_t bytes[MAX_PLAN + 64];
  size_t n;
  uint32_t slots[MAX_SLOTS], n_slots; /* index of each slot's name */
} member;
typedef struct {
  entry names[MAX_NAMES];
  uint32_t n_names, n_plans;
  const uint8_t *file; /* the weights */
  uint64_t file_bytes;
} package;

static package pack;
static member members[MAX_PLANS];

static bool get(const fuzz_seed *s, size_t *at, void *to, size_t n) {
  if (n > s->n - *at) return false;
  memcpy(to, s->bytes + *at, n);
  *at += n;
  return true;
}

/* Reads plan `m` of a seed. */
static bool get_plan(const fuzz_seed *s, size_t *at, member *m) {
  uint32_t n;
  if (!get(s, at, &n, 4) || !get(s, at, &m->n_slots, 4) || n < sizeof(ew_plan_header) ||
      n > MAX_PLAN || m->n_slots > MAX_SLOTS || !get(s, at, m->slots, 4 * (size_t)m->n_slots) ||
      !get(s, at, m->bytes, m->n = n))
    return false;
  const uint32_t hash = EW_TABLE_HASH;
  memcpy(m->bytes + offsetof(ew_plan_header, table_hash), &hash, 4);
  return true;
}

static bool get_package(const fuzz_seed *s) {
  size_t at = 8;
  bool fits = get(s, &at, &pack.n_names, 4) && get(s, &at, &pack.n_plans, 4) &&
              get(s, &at, &pack.file_bytes, 8) && pack.n_names <= MAX_NAMES &&
              pack.n_plans <= MAX_PLANS && pack.n_plans && pack.n_names &&
              get(s, &at, pack.names, pack.n_names * sizeof *pack.names);
  for (uint32_t i = 0; fits && i < pack.n_plans; i++) fits = get_plan(s, &at, &members[i]);
  pack.file = s->bytes + at;
  return fits && pack.file_bytes <= s->n - at;
}

/* ---- changes ---- */

static member *any_plan(void) { return &members[below(pack.n_plans)]; }

/* Position of slot `i` in the plan's own table; 0 if the plan's header is damaged. */
static size_t slot_at(const member *m, uint32_t i) {
  ew_plan_header h;
  memcpy(&h, m->bytes, sizeof h);
  const uint64_t room = m->n / sizeof(ew_slot_entry);
  return h.slots_at < m->n && i < room && h.slots_at + (i + 1) * sizeof(ew_slot_entry) <= m->n
             ? (size_t)(h.slots_at + i * sizeof(ew_slot_entry))
             : 0;
}

static uint64_t other_size(uint64_t bytes) {
  switch (below(6)) {
  case 0: return (uint64_t)telling();
  case 1: return bytes / 2;
  case 2: return bytes * 2;
  case 3: return below(3000);
  default: return bytes + (uint64_t)(int64_t)PICK(-64, -8, -4, -1, 1, 4, 8, 64, 4096);
  }
}

static void set_size(const member *m, uint32_t slot, uint64_t bytes) {
  const size_t at = slot_at(m, slot);
  if (at) memcpy((uint8_t *)m->bytes + at, &bytes, 8);
}

/* Another size of a name: in the table, in one plan, or in all plans. */
static void change_size(void) {
  const uint32_t name = below(pack.n_names), where = below(4);
  const uint64_t bytes = other_size(pack.names[name].bytes);
  if (where != 1) pack.names[name].bytes = bytes;
  if (where == 0) return;
  const member *only = where == 3 ? any_plan() : NULL;
  for (uint32_t p = 0; p < pack.n_plans; p++)
    for (uint32_t i = 0; i < members[p].n_slots; i++)
      if (members[p].slots[i] == name && (!only || only == &members[p]))
        set_size(&members[p], i, bytes);
}

/* A slot has another name: its memory, kind and perhaps size. */
static void change_name(void) {
  member *m = any_plan();
  if (!m->n_slots) return;
  const uint32_t slot = below(m->n_slots);
  m->slots[slot] = one_in(3) ? m->slots[below(m->n_slots)] : below(pack.n_names);
  if (one_in(2)) set_size(m, slot, pack.names[m->slots[slot]].bytes);
}

static void change_table(void) {
  entry *e = &pack.names[below(pack.n_names)], *other = &pack.names[below(pack.n_names)];
  switch (below(4)) {
  case 0: e->kind = below(KINDS); break;
  case 1:
    e->offset = one_in(2) ? other->offset + (uint64_t)(int64_t)PICK(0, 0, -64, -4, 1, 4, 64)
                          : (uint64_t)telling();
    break;
  case 2: e->bytes = other->bytes; break;
  default: *e = *other;
  }
}

static void change_rights(void) {
  const member *m = any_plan();
  const size_t at = m->n_slots ? slot_at(m, below(m->n_slots)) : 0;
  if (at) ((uint8_t *)m->bytes)[at + offsetof(ew_slot_entry, flags)] ^= EW_SLOT_WRITABLE;
}

/* The plan of another package or of this one in this plan's place. */
static void exchange(void) {
  member *m = any_plan();
  const member *other = any_plan();
  if (n_seeds && one_in(2)) {
    const fuzz_seed *s = &seeds[below(n_seeds)];
    memcpy(m->bytes, s->bytes, m->n = s->n);
  } else if (m != other)
    memcpy(m->bytes, other->bytes, m->n = other->n);
}

static void change_registers(void) {
  const member *m = any_plan();
  ew_plan_header h;
  memcpy(&h, m->bytes, sizeof h);
  const uint64_t at = h.registers_at + 8 * (uint64_t)below(4);
  const int64_t value = telling();
  if (at < m->n && at + 8 <= m->n) memcpy((uint8_t *)m->bytes + at, &value, 8);
}

static void change(void) {
  switch (below(10)) {
  case 0:
  case 1: change_size(); break;
  case 2:
  case 3: change_name(); break;
  case 4: change_table(); break;
  case 5: change_rights(); break;
  case 6: one_in(3) ? exchange() : change_registers(); break;
  default: {
    member *m = any_plan();
    m->n = mutate(m->bytes, m->n);
  }
  }
}

/* ---- the host ---- */

static uint8_t *memory[2][MAX_NAMES], *weights; /* [sequence][name]; `weights`: the file */
static bool held[2][MAX_NAMES];                 /* to be freed */
static uint64_t total;

/* Memory of a name for sequence `s`, of exactly the table's size; NULL if there is none. Only
 * caches differ between sequences. */
static uint8_t *memory_of(uint32_t name, int s) {
  const entry *e = &pack.names[name];
  if (e->kind != CACHE) s = 0;
  if (memory[s][name]) return memory[s][name];
  const bool in_file = e->offset <= pack.file_bytes && e->bytes <= pack.file_bytes - e->offset;
  if (e->kind == WEIGHT && in_file && (name & 1)) /* hosts map some weights and copy others */
    return memory[s][name] = weights + e->offset;
  if (e->bytes > MAX_MEMORY || (total += e->bytes) > MAX_TOTAL) return NULL;
  uint8_t *data = memory[s][name] = malloc(e->bytes ? e->bytes : 1);
  if (!data) abort();
  held[s][name] = true;
  if (e->kind == WEIGHT && in_file)
    memcpy(data, pack.file + e->offset, e->bytes);
  else if (e->kind == INPUT || e->kind == STATE)
    memset(data, 0, e->bytes), fill_random(data, e->bytes);
  else
    memset(data, 0, e->bytes);
  return data;
}

/* Binds the slots of a plan for sequence `s`. False if a slot stays unbound. */
static bool bind(ew_plan *p, const member *m, int s) {
  bool all = m->n_slots == p->n_slots;
  for (uint32_t i = 0; i < m->n_slots; i++) {
    const entry *e = &pack.names[m->slots[i]];
    uint8_t *data = memory_of(m->slots[i], s);
    if (!data) {
      all = false;
      continue;
    }
    const int32_t code = ew_plan_bind(p, i, data, e->bytes);
    const bool fits = i < p->n_slots && (p->slots[i].grows || p->slots[i].bytes <= e->bytes);
    /* NULL and 0 is no binding; data is never NULL here */
    if ((code == EW_OK) != fits) die("bound to memory of the wrong size, or refused", "bind");
    all &= fits;
  }
  return all;
}

/* Runs some steps of a plan. The engine must refuse if a slot that it uses is unbound, or two slots
 * share memory that one of them writes. */
static void run_plan(ew_plan *p, const member *m, int s, uint32_t first, uint32_t end) {
  if (!bind(p, m, s)) {
    /* unbound slots may be of no use to any step; the engine knows */
    bool needed = false;
    for (uint32_t i = 0; i < p->n_slots; i++)
      needed |= p->slots[i].in_steps && p->slots[i].bytes && !p->slots[i].bound;
    if (needed && p->n_steps && ew_plan_run(p) == EW_OK) die("ran with unbound slots", "run");
    return;
  }
  const bool compare = p->n_slots < 64; /* all pairs */
  if (compare ? !slots_are_right(p) : ew_check_slots(p) != EW_OK) {
    if (first < end && p->n_steps && ew_plan_run(p) != EW_E_ALIAS) die("ran over aliases", "run");
    return;
  }
  for (uint32_t n = PICK(1, 2, 4, 8, 24); first < end && n; first++, n--) run_guarded(p, first);
}

static void set_registers(ew_plan *p) {
  for (uint32_t i = 0; i < p->n_registers; i++) {
    const ew_register_entry *r = &p->limits[i];
    const uint64_t range = (uint64_t)r->max - (uint64_t)r->min,
                   most = range < 64 || one_in(4) ? range : 64;
    set_register(p, i, (int64_t)((uint64_t)r->min + (most ? next() % most : 0)));
  }
}

/* Other memory for an adapter's weights. */
static void replace_states(void) {
  for (uint32_t i = 0; i < pack.n_names; i++)
    if (pack.names[i].kind == STATE && held[0][i]) {
      free(memory[0][i]);
      memory[0][i] = NULL, held[0][i] = false;
      if (one_in(20)) pack.names[i].bytes = other_size(pack.names[i].bytes);
    }
}

static void play(ew_plan **plans) {
  for (uint32_t i = 0; i < pack.n_plans; i++) /* derived weights */
    if (plans[i]) run_plan(plans[i], &members[i], 0, 0, plans[i]->n_init_steps);
  for (uint32_t n = 1 + below(3); n; n--) {
    const uint32_t i = below(pack.n_plans);
    ew_plan *p = plans[i];
    if (!p) continue;
    set_registers(p);
    const uint32_t init = p->n_init_steps, first = p->n_steps ? below(p->n_steps) : 0;
    run_plan(p, &members[i], (int)below(2), init + (one_in(2) ? 0 : first), init + p->n_steps);
    if (one_in(4)) {
      /* the plans may hold addresses that are freed here: all are bound again before they run */
      replace_states();
      for (uint32_t k = 0; k < pack.n_plans; k++)
        for (uint32_t slot = 0; plans[k] && slot < plans[k]->n_slots; slot++)
          ew_plan_bind(plans[k], slot, NULL, 0);
    }
  }
}

static void run(ew_engine *engine) {
  if (!n_packed) die("no packages", "seeds");
  const fuzz_seed *s = &packed[below(n_packed)];
  if (s->n > LARGE && !one_in(8)) s = &packed[below(n_packed)]; /* small ones run more often */
  if (!get_package(s)) die("a seed that is none", "seeds");
  total = 0;
  memset(memory, 0, sizeof memory), memset(held, 0, sizeof held);
  weights = malloc(pack.file_bytes ? pack.file_bytes : 1);
  if (!weights) abort();
  memcpy(weights, pack.file, pack.file_bytes);
  for (uint32_t n = PICK(0, 1, 1, 1, 2, 2, 3, 5); n; n--) change();
  ew_plan *plans[MAX_PLANS] = {0};
  bool any = false;
  for (uint32_t i = 0; i < pack.n_plans; i++) {
    ew_plan_header h = {0};
    const size_t n = members[i].n;
    memcpy(&h, members[i].bytes, n < sizeof h ? n : sizeof h);
    if (h.arena_bytes > MAX_BYTES && h.arena_bytes <= SIZE_MAX / 2) continue;
    uint8_t *copy = malloc(n ? n : 1); /* of exact size, so that reads past its end are detected */
    if (!copy) abort();
    memcpy(copy, members[i].bytes, n);
    if ((ew_plan_load(engine, copy, n, &plans[i]) == EW_OK) != (plans[i] != NULL))
      die("a plan with an error, or neither", "load");
    free(copy);
    any |= plans[i] != NULL, loaded += plans[i] != NULL;
  }
  if (any) play(plans);
  for (uint32_t i = 0; i < pack.n_plans; i++) ew_plan_free(plans[i]);
  for (int s = 0; s < 2; s++)
    for (uint32_t i = 0; i < pack.n_names; i++)
      if (held[s][i]) free(memory[s][i]);
  free(weights);
}

int main(int argc, char **argv) { return fuzz(argc, argv, run, false); }
