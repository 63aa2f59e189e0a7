/* Runs plans. Every step has been checked before it runs: by the loader and, if it depends on
 * registers, again after a register has changed. */
#if !defined(_POSIX_C_SOURCE)
#  define _POSIX_C_SOURCE 200809L /* for clock_gettime */
#endif
#include "vm.h"
#include <stdlib.h>
#include <string.h>
#if !defined(__wasm__)
#  include "threads.h"
#endif

enum { ALIGNMENT = 64 }; /* bytes */

/* Uses calloc rather than an aligned allocation and memset, because the system provides large
 * blocks already zeroed. The address returned by calloc is stored just before the aligned block. */
static void *aligned(size_t bytes, bool zeroed) {
  if (bytes > SIZE_MAX - ALIGNMENT - sizeof(void *)) return NULL;
  bytes += ALIGNMENT + sizeof(void *);
  void *block = zeroed ? calloc(1, bytes) : malloc(bytes);
  if (!block) return NULL;
  uintptr_t at = ((uintptr_t)block + sizeof(void *) + ALIGNMENT - 1) & ~(uintptr_t)(ALIGNMENT - 1);
  ((void **)at)[-1] = block;
  return (void *)at;
}

EW_API(ew_alloc) void *ew_alloc(size_t bytes) { return aligned(bytes, true); }
EW_API(ew_alloc_unset) void *ew_alloc_unset(size_t bytes) { return aligned(bytes, false); }

EW_API(ew_free) void ew_free(void *data) {
  if (data) free(((void **)data)[-1]);
}

EW_API(ew_open) ew_engine *ew_open(int32_t threads) {
  ew_engine *e = ew_alloc(sizeof *e);
  if (!e) return NULL;
  e->error = (ew_error){EW_OK, -1, -1, -1, 0};
  e->pool = ew_pool_open(e, threads);
  if (e->pool) return e->share = ew_pool_width(e->pool), e;
  ew_free(e);
  return NULL;
}

EW_API(ew_close) void ew_close(ew_engine *e) {
  if (!e) return;
  ew_pool_close(e->pool);
  ew_free(e->arena);
  ew_free(e);
}

EW_API(ew_stop) void ew_stop(ew_engine *e, int32_t stop) {
  __atomic_store_n(&e->stop, stop, __ATOMIC_RELAXED);
}

EW_API(ew_share) void ew_share(ew_engine *e, int32_t threads, int32_t steps) {
  e->turn = steps;
  ew_pool_share(e->pool, threads);
}

EW_API(ew_threads) int32_t ew_threads(const ew_engine *e) { return ew_pool_width(e->pool); }
EW_API(ew_last_error) const ew_error *ew_last_error(const ew_engine *e) { return &e->error; }
EW_API(ew_table_hash) uint32_t ew_table_hash(void) { return EW_TABLE_HASH; }

EW_API(ew_has_kernel) int32_t ew_has_kernel(uint32_t kernel) {
  return kernel < EW_KERNEL_COUNT && ew_code.of[kernel].run;
}

EW_API(ew_flavour) const char *ew_flavour(void) {
#if defined(__wasm_relaxed_simd__)
  return "relaxed-simd";
#elif defined(__wasm_simd128__)
  return "simd128";
#elif defined(__wasm__)
  return "wasm";
#elif defined(__AVX512F__) && defined(__AVX512BW__)
  return "x86-64-v4";
#elif defined(__AVX2__) && defined(__FMA__)
  return "x86-64-v3";
#elif defined(__x86_64__)
  return "x86-64";
#elif defined(__aarch64__)
  return "aarch64";
#else
  return "portable";
#endif
}

#if defined(__wasm__)
/* Long enough that no optimizer inlines them (see kernel.h). */
static volatile int32_t one = 1;
EW_API(ew_choice) __attribute__((noinline)) int32_t ew_choice(int32_t value, int32_t name) {
  return name + one > 0 ? value : 0;
}
EW_API(ew_uses) __attribute__((noinline)) int32_t ew_uses(int32_t minus_name_and_value) {
  return minus_name_and_value < one;
}
#endif

EW_API(ew_plan_register) int32_t ew_plan_register(ew_plan *p, uint32_t reg, int64_t value) {
  if (reg >= p->n_lengths || value < p->limits[reg].min || value > p->limits[reg].max)
    return ew_fail(p->engine, EW_E_REGISTER, -1, reg, -1, value);
  if (p->registers[reg] == value) return EW_OK;
  const int64_t before = p->registers[reg];
  p->registers[reg] = value, p->version++;
  for (uint32_t i = p->n_lengths; i < p->n_computed; i++) {
    if (ew_derive(p, p->registers, i)) continue;
    p->registers[reg] = before;
    for (uint32_t j = p->n_lengths; j < i; j++) ew_derive(p, p->registers, j);
    return ew_fail(p->engine, EW_E_REGISTER, -1, reg, -1, value);
  }
  return EW_OK;
}

int32_t ew_step_refresh(ew_plan *p, ew_step *s) {
  if (!s->registers || s->checked == p->version) return EW_OK;
  const int32_t code = ew_step_check(p, s, p->registers);
  if (!code) s->checked = p->version;
  return code;
}

/* Runs step *at and sets *at to the next one. page: of a step that goes on, else 0. */
static int32_t run_step(ew_plan *p, uint32_t *at, int32_t page) {
  ew_step *s = &p->steps[(*at)++];
  const int32_t changed = ew_step_refresh(p, s);
  if (changed) return changed;
  if (s->empty) return EW_OK;
  void *operand[EW_MAX_OPERANDS];
  for (int i = 0; i < s->kernel->n_operands; i++) {
    const ew_operand *o = &s->operands[i];
    if (o->buffer == EW_NONE) {
      operand[i] = NULL;
      continue;
    }
    uint8_t *base = o->buffer == EW_ARENA   ? p->engine->arena
                    : o->buffer == EW_CONST ? (uint8_t *)p->constants
                                            : p->slots[o->buffer - EW_SLOT0].data;
    /* no base: the slot has pages, which the kernel asks for */
    operand[i] =
        base ? base + (o->offset + (o->reg ? p->registers[o->reg - 1] * o->scale : 0)) : NULL;
  }
  ew_context c = {.engine = p->engine, .plan = p, .step = s, .page = page};
  if (s->jumps && s->params[0] >= 0) c.counter = p->registers[s->params[0]];
  int32_t code = s->code->run(&c, s->params, operand);
  /* the error may result from skipped tasks */
  const int32_t stopped = __atomic_load_n(&p->engine->stopped, __ATOMIC_RELAXED);
  if (stopped) return ew_fail(p->engine, EW_E_STOPPED, s - p->steps, -1, s->id, stopped);
  if (code == EW_AWAY) return ew_fail(p->engine, code, s - p->steps, p->slot, s->id, p->page);
  if (code) return ew_fail(p->engine, code, s - p->steps, -1, s->id, c.detail);
  return s->jumps ? ew_follow_jump(p, s, &c, at) : EW_OK;
}

/* Returns 0 in wasm: the engine has no imports and therefore no clock. A host that measures times
 * runs one step per call. */
static double now(void) {
#if defined(__wasm__)
  return 0;
#else
  return ew_clock();
#endif
}

/* Whether some of the steps first to end - 1 use a slot. */
static bool uses(const ew_plan *p, uint32_t first, uint32_t end, uint32_t slot) {
  for (const ew_step *s = p->steps + first; s < p->steps + end; s++)
    for (int i = 0; i < s->kernel->n_operands; i++)
      if (s->operands[i].buffer == EW_SLOT0 + slot) return true;
  return false;
}

/* Checks what steps first to end - 1 need of the memory that they use. */
static int32_t check_memory(ew_plan *p, uint32_t first, uint32_t end) {
  if (p->arena_bytes > p->engine->arena_bytes)
    return ew_fail(p->engine, EW_E_MEMORY, -1, -1, -1, (int64_t)p->arena_bytes);
  if (first == end) return EW_OK;
  const bool init = first < p->n_init_steps;
  for (uint32_t i = 0; i < p->n_slots; i++) {
    const ew_slot *s = &p->slots[i];
    if (!s->bound && s->bytes &&
        (init ? s->init_begin < end && s->init_end > first : s->in_steps && uses(p, first, end, i)))
      return ew_fail(p->engine, EW_E_UNBOUND, -1, i, -1, 0);
  }
  return p->n_fresh || p->arena_seen != p->engine->arena ? ew_check_slots(p) : EW_OK;
}

/* Runs step `at` and those that follow, to end - 1. Returns EW_PAUSED after `pause` iterations of
 * loops, EW_TURN after as many steps as ew_share says, and EW_AWAY from a step that needs a page:
 * it is called again with that page, else with 0. seconds: NULL, or the times of `count` steps from
 * `first` on. */
static int32_t run_from(ew_plan *p, uint32_t at, uint32_t end, uint32_t pause, int32_t page,
                        double *seconds, uint32_t first, uint32_t count) {
  ew_engine *e = p->engine;
  e->paused = NULL;
  const int32_t memory = check_memory(p, at, end);
  if (memory) return memory;
  __atomic_store_n(&e->stopped, 0, __ATOMIC_RELAXED);
  double before = seconds ? now() : 0;
  for (int32_t left = e->turn; at < end;) {
    const uint32_t step = at;
    if (ew_engine_stopping(e))
      return ew_fail(e, EW_E_STOPPED, step, -1, p->steps[step].id, e->stopped);
    int32_t code = run_step(p, &at, page);
    if (code && code != EW_AWAY) return code;
    page = 0;
    if (seconds) {
      double after = now();
      if (step - first < count) seconds[step - first] += after - before;
      before = after;
    }
    if (!code) {
      if (at == end) break;
      if (p->trips >= pause) return p->next = at, p->away = false, e->paused = p, EW_PAUSED;
      if (left <= 0 || --left) continue;
      code = EW_TURN, p->page = 0;
    }
    p->next = code == EW_AWAY ? step : at;
    p->end = end, p->pause = pause, p->away = true, e->paused = p;
    p->seconds = seconds, p->first = first, p->count = count;
    return code;
  }
  return EW_OK;
}

/* A region is run as a whole by the call that includes its first step. */
static int32_t run(ew_plan *p, uint32_t first, uint32_t count, double *seconds) {
  p->trips = 0;
  if (seconds) memset(seconds, 0, count * sizeof *seconds);
  uint32_t at = first;
  while (at < first + count && p->steps[at].inside) at++;
  const uint32_t end = at < first + count ? p->steps[first + count - 1].end : at;
  return run_from(p, at, end, UINT32_MAX, 0, seconds, first, count);
}

EW_API(ew_plan_go_on) int32_t ew_plan_go_on(ew_plan *p) {
  if (p->engine->paused != p || !p->away) return ew_fail(p->engine, EW_E_ARGUMENT, -1, -1, -1, 0);
  return run_from(p, p->next, p->end, p->pause, p->page, p->seconds, p->first, p->count);
}

EW_API(ew_plan_run_some) int32_t ew_plan_run_some(ew_plan *p, uint32_t trips) {
  const bool goes_on = p->engine->paused == p && !p->away;
  if (!goes_on) p->trips = 0;
  const uint32_t pause = trips < UINT32_MAX - p->trips ? p->trips + trips : UINT32_MAX;
  const uint32_t first = p->n_init_steps;
  return run_from(p, goes_on ? p->next : first, first + p->n_steps, pause, 0, NULL, first, 0);
}

EW_API(ew_plan_trips) uint32_t ew_plan_trips(ew_plan *p, uint32_t limit) {
  p->max_trips = limit;
  return p->trips;
}

EW_API(ew_plan_init) int32_t ew_plan_init(ew_plan *p) { return run(p, 0, p->n_init_steps, NULL); }
EW_API(ew_plan_init_steps) int32_t ew_plan_init_steps(ew_plan *p, uint32_t first, uint32_t count) {
  if (first > p->n_init_steps || count > p->n_init_steps - first)
    return ew_fail(p->engine, EW_E_ARGUMENT, -1, -1, -1, first);
  return run(p, first, count, NULL);
}
EW_API(ew_plan_run) int32_t ew_plan_run(ew_plan *p) {
  return run(p, p->n_init_steps, p->n_steps, NULL);
}

EW_API(ew_plan_run_steps)
int32_t ew_plan_run_steps(ew_plan *p, uint32_t first, uint32_t count, double *seconds) {
  if (first > p->n_steps || count > p->n_steps - first)
    return ew_fail(p->engine, EW_E_ARGUMENT, -1, -1, -1, first);
  return run(p, p->n_init_steps + first, count, seconds);
}
