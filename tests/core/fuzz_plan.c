/* Plans against the loader and the VM, under sanitizers: composed ones, which must be accepted and run, and mutations of them and of
 * the plans in tests/core/seeds, which may be refused but must never do harm.
 *
 *     fuzz_plan [[--runs] N] [--seed S] [--first I] [--seconds T] [--seeds FOLDER] [--verbose]
 *
 * Every run depends on (seed, its number) alone: what a finding prints repeats it. Slots are heap blocks of exactly their size; while a
 * step runs, the arena and the constants are poisoned but for what the step's declaration says it touches, and what it may only
 * read is compared afterwards. So a kernel that reaches one byte too far is found, wherever its operands lie. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include "../../core/vm.h"
#include "../../core/gen/names.h"
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISON(p, n) ASAN_POISON_MEMORY_REGION(p, n)
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
void __sanitizer_set_death_callback(void (*)(void));
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1:max_allocation_size_mb=512:detect_leaks=1"; }
const char *__ubsan_default_options(void); /* which lives in a library of its own and knows no death callback */
const char *__ubsan_default_options(void) { return "print_stacktrace=1:abort_on_error=1"; }
#else
#define POISON(p, n) ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

enum { MAX_FIELDS = 64, MAX_PLAN = 1 << 20, MAX_SEEDS = 64, LONGEST = 20 /* seconds of a run */ };
static const double MOST_WORK = 3e6;               /* elementary operations of a step that is still run */
static const uint64_t MOST_BYTES = UINT64_C(1) << 24; /* of a slot or the arena */

static uint64_t seed = 1, run_number;

static void say_where(void) { fprintf(stderr, "\nfuzz_plan: to repeat:  fuzz_plan --seed %llu --first %llu --runs 1\n", (unsigned long long)seed, (unsigned long long)run_number); }

static void die(const char *why, const char *kernel) {
  fprintf(stderr, "fuzz_plan: %s (%s)\n", why, kernel);
  abort();
}

static void stop(int signal) { /* a run that takes too long, or UBSan's abort */
  (void)signal;
  say_where();
  _exit(3);
}

/* splitmix64 */
static uint64_t state;
static uint64_t next(void) {
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}
static uint32_t below(uint32_t n) { return (uint32_t)((next() >> 32) * n >> 32); }
static bool one_in(uint32_t n) { return below(n) == 0; }
#define PICK(...) ((int32_t[]){__VA_ARGS__}[below(sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))])

/* What the declarations say about the kernels' parameters. */
typedef struct { char name[24]; bool is_float, counts; int at, length; } field;
static struct { field fields[MAX_FIELDS]; int n, dims; uint64_t composed, ran, refused; } kernels[EW_KERNEL_COUNT];

static void read_names(void) {
  static const char *const counts[] = {"batch", "batch0", "batch1", "heads", "m", "n", "k", "q_len", "kv_len", "head_dim", "v_dim", "rows", "cols", "outer", "inner", "count", "axis", "seq", "depth", "dims",
                                       "groups", "c", "channels", "planes", "positions", "taps", "y_size", "classes", "parts"};
  for (int k = 0; k < EW_KERNEL_COUNT; k++) {
    int at = 0;
    for (const char *s = ew_names[k].params; *s;) {
      field *f = &kernels[k].fields[kernels[k].n++];
      *f = (field){.is_float = *s == 'f', .at = at, .length = s[3] == '[' ? s[4] - '0' : 1};
      s = strchr(s, ':') + 1;
      size_t length = strcspn(s, " ");
      memcpy(f->name, s, length < sizeof f->name ? length : sizeof f->name - 1);
      if (!strcmp(f->name, "dims") || !strcmp(f->name, "sizes")) kernels[k].dims = at;
      for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) f->counts |= !strcmp(f->name, counts[c]);
      at += f->length;
      s += length + (s[length] == ' ');
    }
  }
}

/* Parameters as a model might have them: most guesses satisfy the rules, the check has the last word. */
static int32_t count(void) { return one_in(8) ? (int32_t)below(70) : one_in(40) ? (int32_t)below(600) : 1 + (int32_t)below(8); }

static void guess_field(const field *f, int32_t *params, int dims) {
  int32_t *p = params + f->at;
  const char *n = f->name;
  if (f->is_float) {
    float v = one_in(10) ? NAN : one_in(10) ? INFINITY : one_in(3) ? 1.0f : (float)((int32_t)below(2000) - 1000) / 256;
    memcpy(p, &v, 4);
  } else if (f->length == 6 && f->at == dims) {
    for (int d = 0; d < 6; d++) p[d] = one_in(2) ? 1 : one_in(30) ? (int32_t)below(700) : 1 + (int32_t)below(5);
  } else if (f->length == 6) {
    int32_t span = 1, kind = (int32_t)below(4);
    for (int d = 5; d >= 0; d--) {
      p[d] = kind == 0 && one_in(2) ? 0 : kind == 1 ? (int32_t)below(9) : kind == 2 && one_in(3) ? -span : span;
      span *= span > 100000 || params[dims + d] <= 0 || params[dims + d] > 10000 ? 1 : params[dims + d]; /* kernels without dims have other numbers there */
    }
  } else if (f->length == 3) { /* of a window */
    for (int d = 0; d < 3; d++) p[d] = !strcmp(n, "pad") || !strcmp(n, "tail") ? (int32_t)below(5) - 1 : one_in(2) ? 1 : 1 + (int32_t)below(strstr(n, "size") ? 20 : 5);
  } else if (strstr(n, "type"))
    *p = one_in(2) ? EW_F32 : one_in(3) ? PICK(EW_U8, EW_I8) : PICK(1, 2, 3, 4, 5, 6, 6, 7, 7, 9, 10, 11, 12, 13, 16, 17, 20, 21, 22, 24, 26, 28);
  else if (!strcmp(n, "size"))
    *p = PICK(1, 2, 4, 4, 8);
  else if (!strcmp(n, "bits"))
    *p = PICK(2, 4, 8, 8, 16, 32);
  else if (!strcmp(n, "block"))
    *p = PICK(-1, 0, 16, 32, 32, 5);
  else if (!strcmp(n, "op") || !strcmp(n, "activation"))
    *p = (int32_t)below(one_in(2) ? 8 : 47);
  else if (!strcmp(n, "axis") || !strcmp(n, "depth"))
    *p = (int32_t)below(one_in(2) ? 3 : 7);
  else if (!strcmp(n, "k") && one_in(3))
    *p = (int32_t)below(21) - 10;
  else if (strstr(n, "dim"))
    *p = 2 * (1 + (int32_t)below(one_in(4) ? 40 : 8));
  else if (strchr(n, '_') && !strstr(n, "len") && !strstr(n, "rows") && !strstr(n, "heads"))
    *p = PICK(0, 1, 1, 2, (int32_t)below(9), (int32_t)below(70), (int32_t)below(700));
  else
    *p = one_in(6) ? PICK(0, 1, 2, 3) : count();
}

static void guess(int k, int32_t *params) {
  for (int i = 0; i < kernels[k].n; i++) guess_field(&kernels[k].fields[i], params, kernels[k].dims);
}

/* Elementary operations at most, from the parameters that count something. */
static double work_of(int k, const int32_t *params) {
  double work = 1;
  for (int i = 0; i < kernels[k].n; i++) {
    const field *f = &kernels[k].fields[i];
    for (int d = 0; f->counts && d < f->length; d++) work *= params[f->at + d] ? fabs((double)params[f->at + d]) : 1;
  }
  return work;
}

/* A plan under construction */
typedef struct {
  uint8_t steps[MAX_PLAN / 2];
  size_t step_bytes;
  uint8_t constants[1 << 14];
  size_t const_bytes;
  ew_register_entry registers[4];
  ew_slot_entry slots[64];
  uint32_t n_registers, n_slots, n_init, n_steps;
  uint64_t arena;
} draft;

static void fill_random(uint8_t *p, size_t n) { /* numbers that are indices, types or floats as often as noise */
  const uint32_t kind = below(5);
  for (size_t i = 0; i + 8 <= n; i += 8) {
    uint64_t v = kind == 0 ? next() : 0;
    if (kind == 1) v = below(4) | (uint64_t)below(4) << 32;
    if (kind == 2) v = below(3);
    if (kind >= 3)
      for (int h = 0; h < 2; h++) {
        float f = (float)((int32_t)below(4096) - 2048) / 512;
        uint32_t u;
        memcpy(&u, &f, 4);
        v |= (uint64_t)u << 32 * h;
      }
    memcpy(p + i, &v, 8);
  }
}

static bool compose_step(draft *d, bool init) {
  const int k = (int)below(EW_KERNEL_COUNT);
  const ew_kernel *kernel = &ew_kernels[k];
  int32_t params[256] = {0}, other[256];
  ew_reach reach[EW_MAX_OPERANDS], end[EW_MAX_OPERANDS];
  bool empty = false;
  int tries = 0;
  do {
    if (++tries > 2000) return false;
    guess(k, params);
  } while (work_of(k, params) > MOST_WORK / 4 || ew_code.of[k].check(params, reach, &empty) != EW_CHECKED || (empty && !one_in(50)));
  if (empty) memset(reach, 0, sizeof reach);

  /* Perhaps a field follows a register: the operands then take in what is reached at both ends. */
  ew_patch patch = {0};
  bool patched = false;
  if (d->n_registers && one_in(3)) {
    const field *f = &kernels[k].fields[below((uint32_t)kernels[k].n)];
    patch = (ew_patch){(uint32_t)f->at + below((uint32_t)f->length), below(d->n_registers), one_in(3) ? 0 : 1, 0};
    const ew_register_entry *r = &d->registers[patch.reg];
    patch.add = params[patch.field] - r->min * patch.scale;
    bool other_empty = true;
    memcpy(other, params, sizeof params);
    other[patch.field] = (int32_t)(r->max * patch.scale + patch.add);
    patched = !empty && !f->is_float && work_of(k, other) < MOST_WORK / 4 && ew_code.of[k].check(other, end, &other_empty) == EW_CHECKED && !other_empty;
    for (int i = 0; patched && i < kernel->n_operands; i++) {
      int64_t s = end[i].size, lo = end[i].lo * s, hi = end[i].hi * s, lo0 = reach[i].lo * reach[i].size, hi0 = reach[i].hi * reach[i].size;
      end[i] = (ew_reach){1, lo < lo0 ? lo : lo0, hi > hi0 ? hi : hi0};
    }
  }

  ew_operand operands[EW_MAX_OPERANDS];
  for (int i = 0; i < kernel->n_operands; i++) {
    ew_operand *o = &operands[i];
    const ew_reach *r = patched ? &end[i] : &reach[i];
    const bool output = kernel->outputs >> i & 1;
    const int64_t lo = r->lo * r->size, bytes = (r->hi - r->lo) * r->size;
    if (bytes > (1 << 22)) return false;
    *o = (ew_operand){EW_NONE, 0, 0, 0};
    if ((kernel->optional >> i & 1) && one_in(3)) continue;
    int64_t extra = 0;
    if (d->n_registers && one_in(4)) {
      o->reg = 1 + below(d->n_registers);
      o->scale = (int64_t)below(3) * r->size;
      extra = d->registers[o->reg - 1].max * o->scale;
    }
    int64_t base;
    const uint32_t where = below(3);
    if (!output && where == 0 && d->const_bytes + (size_t)(bytes + extra) < sizeof d->constants) {
      o->buffer = EW_CONST, base = (int64_t)d->const_bytes, d->const_bytes += (size_t)(bytes + extra);
    } else if (where <= 1 && d->n_slots < 64) {
      o->buffer = EW_SLOT0 + d->n_slots, base = (int64_t)below(20);
      d->slots[d->n_slots++] = (ew_slot_entry){(uint64_t)(base + bytes + extra), output ? EW_SLOT_WRITABLE : 0, 0};
    } else {
      if (d->arena > MOST_BYTES / 2) return false;
      o->buffer = EW_ARENA, base = (int64_t)(d->arena += one_in(2) ? below(20) : 0), d->arena += (uint64_t)(bytes + extra);
    }
    o->offset = base - lo - (o->reg ? d->registers[o->reg - 1].min * o->scale : 0);
    for (int j = 0; output && !patched && j < i; j++) {
      const ew_operand *input = &operands[j];
      const bool writable = input->buffer == EW_ARENA || (input->buffer != EW_NONE && input->buffer >= EW_SLOT0);
      bool taken = false;
      for (int q = 0; q < i; q++) taken |= (kernel->outputs >> q & 1) && operands[q].buffer == input->buffer && operands[q].offset == input->offset;
      if ((kernel->inplace[i] >> j & 1) && writable && !taken && reach[i].lo == reach[j].lo && reach[i].hi == reach[j].hi && reach[i].size == reach[j].size && one_in(2)) {
        *o = *input;
        if (o->buffer >= EW_SLOT0) d->slots[o->buffer - EW_SLOT0].flags = EW_SLOT_WRITABLE;
        break;
      }
    }
  }
  const size_t param_bytes = kernel->param_bytes, padded = (param_bytes + 7) / 8 * 8, n_patches = patched;
  const size_t size = sizeof(ew_step_header) + padded + n_patches * sizeof patch + kernel->n_operands * sizeof *operands;
  if (d->step_bytes + size > sizeof d->steps) return false;
  uint8_t *to = d->steps + d->step_bytes;
  const ew_step_header h = {(uint16_t)k, kernel->n_operands, (uint16_t)n_patches, 0, (uint32_t)param_bytes, (uint32_t)size};
  memset(to, 0, size);
  memcpy(to, &h, sizeof h);
  memcpy(to + sizeof h, params, param_bytes);
  if (patched) memcpy(to + sizeof h + padded, &patch, sizeof patch);
  memcpy(to + sizeof h + padded + n_patches * sizeof patch, operands, kernel->n_operands * sizeof *operands);
  d->step_bytes += size;
  *(init ? &d->n_init : &d->n_steps) += 1;
  kernels[k].composed++;
  return true;
}

static size_t put(uint8_t *plan, size_t at, const void *data, size_t n) {
  if (n) memcpy(plan + at, data, n);
  memset(plan + at + n, 0, 16);
  return (at + n + 15) / 16 * 16;
}

static size_t compose(uint8_t *plan) {
  static draft d;
  memset(&d, 0, offsetof(draft, constants));
  d.step_bytes = d.const_bytes = 0, d.n_registers = d.n_slots = d.n_init = d.n_steps = 0, d.arena = 0;
  for (d.n_registers = 0; d.n_registers < 4 && one_in(2); d.n_registers++) {
    const int64_t least = (int64_t)below(3);
    d.registers[d.n_registers] = (ew_register_entry){least, least + (int64_t)below(6)};
  }
  const uint32_t wanted = 1 + below(4);
  if (one_in(3)) compose_step(&d, true);
  for (uint32_t i = 0; i < wanted; i++) compose_step(&d, false);
  fill_random(d.constants, d.const_bytes);
  ew_plan_header h = {.table_hash = EW_TABLE_HASH, .n_registers = d.n_registers, .n_slots = d.n_slots, .n_init_steps = d.n_init, .n_steps = d.n_steps, .arena_bytes = d.arena, .const_bytes = d.const_bytes};
  memcpy(h.magic, EW_PLAN_MAGIC, 8);
  size_t at = (sizeof h + 15) / 16 * 16;
  h.registers_at = at, at = put(plan, at, d.registers, d.n_registers * sizeof *d.registers);
  h.slots_at = at, at = put(plan, at, d.slots, d.n_slots * sizeof *d.slots);
  h.const_at = at, at = put(plan, at, d.constants, d.const_bytes);
  h.steps_at = at, at += d.step_bytes;
  memcpy(plan + h.steps_at, d.steps, d.step_bytes);
  h.total_bytes = at;
  memcpy(plan, &h, sizeof h);
  return at;
}

/* Changes to a plan */
static int64_t telling(void) {
  static const int64_t values[] = {0, 1, -1, 2, 7, 8, 16, 255, 65535, 65536, INT32_MAX, INT32_MIN, (int64_t)INT32_MAX + 1, UINT32_MAX, (int64_t)UINT32_MAX + 1, INT64_MAX, INT64_MIN, (int64_t)1 << 40, INT64_MAX / 8, INT64_MAX / 4 + 1};
  return one_in(2) ? values[below(sizeof values / sizeof *values)] : one_in(2) ? (int64_t)below(40) - 8 : (int64_t)below(5000);
}

static size_t mutate(uint8_t *plan, size_t n) {
  if (n < 8) return n;
  ew_plan_header h = {0};
  memcpy(&h, plan, n < sizeof h ? n : sizeof h);
  size_t at = below((uint32_t)n);
  if (one_in(8)) at = below(sizeof h);
  else if (h.steps_at < n && !one_in(4)) at = (size_t)h.steps_at + below((uint32_t)(n - h.steps_at)); /* where plans differ most */
  switch (below(9)) {
  case 0: plan[at] ^= (uint8_t)(1u << below(8)); break;
  case 1: plan[at] = (uint8_t)next(); break;
  case 2: case 3: { /* a 32-bit field */
    at = at / 4 * 4;
    if (at + 4 > n) break;
    uint32_t v;
    memcpy(&v, plan + at, 4);
    v = one_in(3) ? v + (uint32_t)below(33) - 16 : (uint32_t)telling();
    memcpy(plan + at, &v, 4);
    break;
  }
  case 4: case 5: { /* a 64-bit field */
    at = at / 8 * 8;
    if (at + 8 > n) break;
    uint64_t v;
    memcpy(&v, plan + at, 8);
    v = one_in(2) ? v + (uint64_t)below(65) - 32 : (uint64_t)telling();
    memcpy(plan + at, &v, 8);
    break;
  }
  case 6: { /* a field from elsewhere */
    const size_t from = below((uint32_t)n) / 4 * 4, size = one_in(2) ? 4 : 24;
    at = at / 4 * 4;
    if (at + size <= n && from + size <= n) memmove(plan + at, plan + from, size);
    break;
  }
  case 7: return one_in(4) ? at : n; /* cut short */
  default: { /* two fields change places */
    const size_t from = below((uint32_t)n) / 4 * 4;
    at = at / 4 * 4;
    if (at + 4 > n || from + 4 > n) break;
    uint32_t a, b;
    memcpy(&a, plan + at, 4), memcpy(&b, plan + from, 4);
    memcpy(plan + at, &b, 4), memcpy(plan + from, &a, 4);
  }
  }
  return n;
}

/* Running what was accepted */
static uint64_t digest(const uint8_t *p, int64_t n) {
  uint64_t h = 1469598103934665603u;
  for (int64_t i = 0; i < n; i++) h = (h ^ p[i]) * 1099511628211u;
  return h;
}

static uint8_t *start_of(ew_plan *p, const ew_operand *o) {
  uint8_t *base = o->buffer == EW_ARENA ? p->engine->arena : o->buffer == EW_CONST ? (uint8_t *)p->constants : p->slots[o->buffer - EW_SLOT0].data;
  return base + o->offset + (o->reg ? p->registers[o->reg - 1] * o->scale : 0);
}

static uint64_t loaded, ran, failed, skipped;

/* Step `step`, counted with the init steps. */
static int32_t run_one(ew_plan *p, uint32_t step) { return step < p->n_init_steps ? ew_plan_init_steps(p, step, 1) : ew_plan_run_steps(p, step - p->n_init_steps, 1, NULL); }
static void run_guarded(ew_plan *p, uint32_t step) {
  ew_step *s = &p->steps[step];
  const ew_kernel *kernel = s->kernel;
  ew_reach reach[EW_MAX_OPERANDS];
  uint64_t before[EW_MAX_OPERANDS] = {0};
  if (ew_step_check(p, s, p->registers) != EW_OK) { /* between the ends of its registers (a size of 4 and 8, but not of 5): the VM must say so too */
    if (run_one(p, step) == EW_OK) die("the VM ran a step that its check refuses", ew_names[s->id].name);
    skipped++;
    return;
  }
  if (s->empty || work_of(s->id, s->params) > MOST_WORK) {
    skipped++;
    return;
  }
  bool empty;
  if (s->code->check(s->params, reach, &empty) != EW_CHECKED) die("the check changed its mind", ew_names[s->id].name);
  for (int i = 0; i < kernel->n_operands; i++) {
    const ew_operand *o = &s->operands[i];
    const int64_t bytes = (reach[i].hi - reach[i].lo) * reach[i].size;
    if (o->buffer == EW_NONE || kernel->outputs >> i & 1 || bytes > 1 << 16) continue;
    before[i] = digest(start_of(p, o) + reach[i].lo * reach[i].size, bytes);
  }
  const uint64_t arena = p->arena_bytes + 256 < p->engine->arena_bytes ? p->arena_bytes + 256 : p->engine->arena_bytes;
  POISON(p->engine->arena, arena);
  POISON(p->constants, p->const_bytes);
  for (int i = 0; i < kernel->n_operands; i++)
    if (s->operands[i].buffer == EW_ARENA || s->operands[i].buffer == EW_CONST) UNPOISON(start_of(p, &s->operands[i]) + reach[i].lo * reach[i].size, (size_t)((reach[i].hi - reach[i].lo) * reach[i].size));
  const int32_t code = run_one(p, step);
  UNPOISON(p->engine->arena, arena);
  UNPOISON(p->constants, p->const_bytes);
  for (int i = 0; i < kernel->n_operands; i++) {
    const ew_operand *o = &s->operands[i];
    const int64_t bytes = (reach[i].hi - reach[i].lo) * reach[i].size;
    if (o->buffer == EW_NONE || kernel->outputs >> i & 1 || bytes > 1 << 16) continue;
    bool replaced = false;
    for (int j = 0; j < kernel->n_operands; j++) replaced |= (kernel->outputs >> j & 1) && s->operands[j].buffer == o->buffer && start_of(p, &s->operands[j]) + reach[j].lo * reach[j].size == start_of(p, o) + reach[i].lo * reach[i].size;
    if (!replaced && before[i] != digest(start_of(p, o) + reach[i].lo * reach[i].size, bytes)) die("wrote to an operand it may only read", ew_names[s->id].name);
  }
  if (code != EW_OK && code != EW_E_PARAM && code != EW_E_INDEX && code != EW_E_KERNEL) die("an error no kernel may have", ew_names[s->id].name);
  if (code == EW_OK) ran++, kernels[s->id].ran++;
  else failed++, kernels[s->id].refused++;
}

static void try_plan(ew_engine *e, const uint8_t *bytes, size_t n, bool must_work) {
  ew_plan_header h = {0};
  memcpy(&h, bytes, n < sizeof h ? n : sizeof h);
  if (h.arena_bytes > MOST_BYTES && h.arena_bytes <= SIZE_MAX / 2) return; /* an allocation that fails or not: no finding in that */
  uint8_t *copy = malloc(n ? n : 1); /* so that reading past its end is seen */
  memcpy(copy, bytes, n);
  ew_plan *p;
  const int32_t code = ew_plan_load(e, copy, n, &p);
  free(copy);
  if ((code == EW_OK) != (p != NULL)) die("a plan with an error, or neither", "load");
  if (code != EW_OK) {
    const ew_error *error = ew_last_error(e);
    if (must_work) {
      fprintf(stderr, "code %d step %d operand %d detail %lld\n", error->code, error->step, error->operand, (long long)error->detail);
      die("a composed plan was refused", error->kernel >= 0 && error->kernel < EW_KERNEL_COUNT ? ew_names[error->kernel].name : "load");
    }
    if (error->code != code) die("another error than returned", "load");
    return;
  }
  loaded++;
  bool can_run = true;
  for (uint32_t i = 0; i < p->n_slots; i++) can_run &= p->slots[i].bytes <= MOST_BYTES;
  for (uint32_t i = 0; can_run && i < p->n_slots; i++) {
    uint8_t *data = malloc(p->slots[i].bytes ? p->slots[i].bytes : 1);
    if (!data) abort();
    memset(data, 0, p->slots[i].bytes);
    fill_random(data, p->slots[i].bytes);
    if (ew_plan_bind(p, i, data, p->slots[i].bytes)) die("bind", "slot");
  }
  if (can_run) {
    for (uint32_t i = 0; i < p->n_registers; i++) {
      const ew_register_entry *r = &p->limits[i];
      const uint64_t range = (uint64_t)r->max - (uint64_t)r->min;
      if (one_in(2) && ew_plan_register(p, i, (int64_t)((uint64_t)r->min + (range ? next() % range : 0)))) die("register", "");
    }
    for (uint32_t i = 0; i < p->n_init_steps + p->n_steps; i++) run_guarded(p, i);
  }
  for (uint32_t i = 0; i < p->n_slots; i++) free(p->slots[i].data);
  ew_plan_free(p);
}

static uint8_t *seeds[MAX_SEEDS];
static size_t seed_bytes[MAX_SEEDS];
static uint32_t n_seeds;

static void read_seeds(const char *folder) {
  DIR *d = opendir(folder);
  for (struct dirent *e; d && n_seeds < MAX_SEEDS && (e = readdir(d));) {
    const char *dot = strrchr(e->d_name, '.');
    char path[1024];
    if (!dot || strcmp(dot, ".plan") || snprintf(path, sizeof path, "%s/%s", folder, e->d_name) >= (int)sizeof path) continue;
    FILE *f = fopen(path, "rb");
    if (!f) continue;
    uint8_t *bytes = malloc(MAX_PLAN);
    const size_t n = fread(bytes, 1, MAX_PLAN, f);
    const bool whole = feof(f) || fgetc(f) == EOF;
    fclose(f);
    if (n < sizeof(ew_plan_header) || !whole) {
      free(bytes);
      continue;
    }
    const uint32_t hash = EW_TABLE_HASH; /* made for another table, it still is an interesting plan */
    memcpy(bytes + offsetof(ew_plan_header, table_hash), &hash, 4);
    seeds[n_seeds] = bytes, seed_bytes[n_seeds++] = n;
  }
  if (d) closedir(d);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
  uint64_t runs = 20000, first = 0;
  double seconds = 1e9;
  const char *folder = "tests/core/seeds";
  bool verbose = false;
  for (int i = 1; i < argc; i++) {
    const char *value = i + 1 < argc ? argv[i + 1] : "";
    if (!strcmp(argv[i], "--verbose")) verbose = true;
    else if (!strcmp(argv[i], "--runs")) runs = strtoull(value, NULL, 10), i++;
    else if (!strcmp(argv[i], "--seed")) seed = strtoull(value, NULL, 10), i++;
    else if (!strcmp(argv[i], "--first")) first = strtoull(value, NULL, 10), i++;
    else if (!strcmp(argv[i], "--seconds")) seconds = strtod(value, NULL), i++;
    else if (!strcmp(argv[i], "--seeds")) folder = value, i++;
    else if (*argv[i] >= '0' && *argv[i] <= '9') runs = strtoull(argv[i], NULL, 10);
    else {
      fprintf(stderr, "usage: fuzz_plan [[--runs] N] [--seed S] [--first I] [--seconds T] [--seeds FOLDER] [--verbose]\n");
      return 2;
    }
  }
  signal(SIGALRM, stop), signal(SIGABRT, stop);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_set_death_callback(say_where);
#endif
  read_names();
  read_seeds(folder);
  ew_engine *engines[2] = {ew_open(1), ew_open(3)};
  static uint8_t plan[MAX_PLAN + 64];
  const double start = now();
  uint64_t done = 0;
  for (run_number = first; done < runs && now() - start < seconds; run_number++, done++) {
    alarm(LONGEST);
    state = seed * 0x2545f4914f6cdd1du + run_number * 0x9e3779b97f4a7c15u;
    next();
    size_t n;
    const bool from_seed = n_seeds && one_in(3);
    if (from_seed) {
      const uint32_t i = below(n_seeds);
      memcpy(plan, seeds[i], n = seed_bytes[i]);
    } else
      n = compose(plan);
    const bool changed = !one_in(8);
    for (uint32_t m = changed ? 1 + below(one_in(4) ? 8 : 2) : 0; m; m--) n = mutate(plan, n);
    try_plan(engines[one_in(8)], plan, n, !changed && !from_seed);
  }
  alarm(0);
  ew_close(engines[0]), ew_close(engines[1]);
  for (uint32_t i = 0; i < n_seeds; i++) free(seeds[i]);
  printf("fuzz_plan: %llu plans in %.0f s from seed %llu and %u files: %llu accepted; steps: %llu ran, %llu stopped with an error, %llu skipped\n", (unsigned long long)done, now() - start,
         (unsigned long long)seed, n_seeds, (unsigned long long)loaded, (unsigned long long)ran, (unsigned long long)failed, (unsigned long long)skipped);
  for (int k = 0; k < EW_KERNEL_COUNT; k++) {
    if (verbose) printf("  %-18s composed %8llu  ran %8llu  error %8llu\n", ew_names[k].name, (unsigned long long)kernels[k].composed, (unsigned long long)kernels[k].ran, (unsigned long long)kernels[k].refused);
    if (done >= 10000 && !kernels[k].ran) {
      fprintf(stderr, "fuzz_plan: %s never ran\n", ew_names[k].name);
      return 1;
    }
  }
  return 0;
}
