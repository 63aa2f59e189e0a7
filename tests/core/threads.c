/* Multithreading test for the thread sanitizer: several engines at once, one engine called by
 * several threads under a lock, ew_stop from another thread and from a signal handler during a run,
 * and thread pools opened and closed. Results must be bit-identical to those of one thread.
 *
 *     threads [ROUNDS]
 */
#if !defined(_POSIX_C_SOURCE)
#  define _POSIX_C_SOURCE 200809L
#endif
#include "common/fuzz.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

enum { N = 96, ELEMENTS = N * N, CALLERS = 4, WIDTH = 3 };

static int rounds = 40;

static void check(bool ok, const char *what) {
  if (ok) return;
  fprintf(stderr, "threads: %s\n", what);
  abort();
}

/* A plan for y = softmax(relu(a @ a)), row by row, with intermediates in the arena; `repeat` times,
 * so that a run takes a while. Slots: a, y, scratch. */
static size_t compose(uint8_t *plan, uint32_t repeat) {
  draft *d = calloc(1, sizeof *d);
  check(d != NULL, "memory");
  const uint64_t bytes = ELEMENTS * 4;
  d->slots[0] = (ew_slot_entry){bytes, 0, 0},
  d->slots[1] = (ew_slot_entry){bytes, EW_SLOT_WRITABLE, 0},
  d->slots[2] = (ew_slot_entry){(131072 + 65536) * 4, EW_SLOT_WRITABLE, 0};
  d->n_slots = 3, d->arena = 2 * bytes;
  const ew_operand none = {EW_NONE, 0, 0, 0}, a = {EW_SLOT0, 0, 0, 0}, y = {EW_SLOT0 + 1, 0, 0, 0},
                   scratch = {EW_SLOT0 + 2, 0, 0, 0}, t = {EW_ARENA, 0, 0, 0},
                   u = {EW_ARENA, 0, (int64_t)bytes, 0};
  const ew_gemm_params gemm = {.batch0 = 1,
                               .batch1 = 1,
                               .m = N,
                               .n = N,
                               .k = N,
                               .a_row = N,
                               .a_col = 1,
                               .b_row = N,
                               .b_col = 1,
                               .y_row = N,
                               .b_type = EW_F32,
                               .alpha = 1};
  const ew_unary_params relu = {.op = EW_UNARY_RELU,
                                .type = EW_F32,
                                .dims = {1, 1, 1, 1, N, N},
                                .xs = {0, 0, 0, 0, N, 1},
                                .ys = {0, 0, 0, 0, N, 1}};
  const ew_softmax_params softmax = {.rows = N, .cols = N, .x_row = N, .y_row = N};
  int product = -1, unary = -1, rows = -1;
  for (int k = 0; k < EW_KERNEL_COUNT; k++) {
    if (!strcmp(name_of(k), "gemm")) product = k;
    if (!strcmp(name_of(k), "unary")) unary = k;
    if (!strcmp(name_of(k), "softmax")) rows = k;
  }
  for (uint32_t i = 0; i < repeat; i++) {
    draft_step *s = &d->steps[d->n_steps];
    s[0] = (draft_step){.kernel = (uint16_t)product,
                        .n_operands = 6,
                        .param_bytes = sizeof gemm,
                        .operands = {a, a, none, none, t, scratch}};
    memcpy(s[0].params, &gemm, sizeof gemm);
    s[1] = (draft_step){
        .kernel = (uint16_t)unary, .n_operands = 2, .param_bytes = sizeof relu, .operands = {t, u}};
    memcpy(s[1].params, &relu, sizeof relu);
    s[2] = (draft_step){.kernel = (uint16_t)rows,
                        .n_operands = 2,
                        .param_bytes = sizeof softmax,
                        .operands = {u, y}};
    memcpy(s[2].params, &softmax, sizeof softmax);
    d->n_steps += 3;
  }
  const size_t n = write_draft(d, plan);
  free(d);
  check(n > 0, "plan");
  return n;
}

typedef struct {
  ew_engine *engine;
  ew_plan *plan;
  float *a, *y, *scratch;
} model;

static uint8_t short_plan[MAX_PLAN + 64], long_plan[MAX_PLAN + 64];
static size_t short_bytes, long_bytes;
static float expected[ELEMENTS];

static model open_model(ew_engine *engine, bool is_long) {
  model m = {engine, NULL, ew_alloc(ELEMENTS * 4), ew_alloc(ELEMENTS * 4),
             ew_alloc((131072 + 65536) * 4)};
  check(m.a && m.y && m.scratch, "memory");
  for (int i = 0; i < ELEMENTS; i++) m.a[i] = (float)(i * 37 % 101) / 101 - 0.5f;
  check(ew_plan_load(engine, is_long ? long_plan : short_plan, is_long ? long_bytes : short_bytes,
                     &m.plan) == EW_OK,
        "load");
  check(!ew_plan_bind(m.plan, 0, m.a, ELEMENTS * 4) &&
            !ew_plan_bind(m.plan, 1, m.y, ELEMENTS * 4) &&
            !ew_plan_bind(m.plan, 2, m.scratch, (131072 + 65536) * 4),
        "bind");
  return m;
}

static void close_model(model *m) {
  ew_plan_free(m->plan);
  ew_free(m->a), ew_free(m->y), ew_free(m->scratch);
}

static void run_right(model *m) {
  memset(m->y, 0, ELEMENTS * 4);
  check(ew_plan_run(m->plan) == EW_OK, "run");
  check(!memcmp(m->y, expected, sizeof expected), "another result than alone");
}

static void start(pthread_t *threads, int n, void *(*f)(void *), void *arg) {
  for (int i = 0; i < n; i++) check(!pthread_create(&threads[i], NULL, f, arg), "thread");
}
static void join(pthread_t *threads, int n) {
  for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
}

/* ---- several engines, opened and closed concurrently ---- */

static void *own_engine(void *arg) {
  (void)arg;
  for (int r = 0; r < rounds / 8 + 1; r++) {
    ew_engine *e = ew_open(r % 2 ? WIDTH : 1);
    check(e != NULL, "open");
    model m = open_model(e, false);
    for (int i = 0; i < 4; i++) run_right(&m);
    close_model(&m);
    ew_close(e);
    ew_close(ew_open(WIDTH)); /* a pool that never runs a job */
  }
  return NULL;
}

/* ---- one engine used by several threads, each with its own plan; the arena is shared ---- */

typedef struct {
  ew_engine *engine;
  pthread_mutex_t lock;
} shared;

static void *under_lock(void *arg) {
  shared *s = arg;
  pthread_mutex_lock(&s->lock);
  model m = open_model(s->engine, false);
  pthread_mutex_unlock(&s->lock);
  for (int i = 0; i < rounds; i++) {
    pthread_mutex_lock(&s->lock);
    run_right(&m);
    pthread_mutex_unlock(&s->lock);
  }
  pthread_mutex_lock(&s->lock);
  close_model(&m);
  pthread_mutex_unlock(&s->lock);
  return NULL;
}

/* ---- the stop word ---- */

static ew_engine *stoppable;
static atomic_bool over;

static void *stop_now_and_then(void *arg) {
  (void)arg;
  const struct timespec pause = {0, 200000};
  for (int32_t i = 1; !over; i++) {
    ew_stop(stoppable, i % 5 + 1);
    nanosleep(&pause, NULL);
    ew_stop(stoppable, 0);
    nanosleep(&pause, NULL);
  }
  ew_stop(stoppable, 0);
  return NULL;
}

static void on_signal(int signal) {
  (void)signal;
  ew_stop(stoppable, 9);
}

static void stopping(int width) {
  ew_engine *e = stoppable = ew_open(width);
  check(e != NULL, "open");
  model m = open_model(e, true);
  pthread_t thread;
  int stopped_runs = 0;
  over = false;
  start(&thread, 1, stop_now_and_then, NULL);
  for (int i = 0; i < 4 * rounds; i++) {
    const int32_t code = ew_plan_run(m.plan);
    check(code == EW_OK || code == EW_E_STOPPED, "a code that is neither right nor stopped");
    if (code == EW_OK)
      check(!memcmp(m.y, expected, sizeof expected),
            "a run that was stopped within a step counts as whole");
    else {
      const ew_error *error = ew_last_error(e);
      stopped_runs++;
      check(error->code == EW_E_STOPPED && error->detail >= 1 && error->detail <= 5 &&
                error->step >= 0,
            "the error of a stopped run");
    }
  }
  over = true;
  join(&thread, 1);
  check(stopped_runs > 0, "no run was stopped");
  run_right(&m);
  ew_stop(e, 3); /* before a run: the run must end at once until the word is cleared */
  check(ew_plan_run(m.plan) == EW_E_STOPPED && ew_last_error(e)->step == 0 &&
            ew_last_error(e)->detail == 3,
        "a run that should not begin");
  check(ew_plan_run_steps(m.plan, 0, 1, NULL) == EW_E_STOPPED, "steps that should not begin");
  ew_stop(e, 0);
  run_right(&m);
  signal(SIGALRM, on_signal);
  timer_t timer;
  check(!timer_create(CLOCK_MONOTONIC, NULL, &timer), "timer");
  const struct itimerspec soon = {{0, 0}, {0, 1000000}};
  check(!timer_settime(timer, 0, &soon, NULL), "timer");
  int32_t code;
  do code = ew_plan_run(m.plan);
  while (code == EW_OK);
  check(code == EW_E_STOPPED && ew_last_error(e)->detail == 9, "stopped by a signal");
  timer_delete(timer);
  ew_stop(e, 0);
  run_right(&m);
  close_model(&m);
  ew_close(e);
}

int main(int argc, char **argv) {
  if (argc > 1) rounds = atoi(argv[1]);
  short_bytes = compose(short_plan, 1), long_bytes = compose(long_plan, 30);
  ew_engine *alone = ew_open(1);
  model m = open_model(alone, false);
  check(ew_plan_run(m.plan) == EW_OK, "run");
  memcpy(expected, m.y, sizeof expected);
  close_model(&m);
  ew_close(alone);

  pthread_t threads[CALLERS];
  start(threads, CALLERS, own_engine, NULL);
  join(threads, CALLERS);

  shared s = {.engine = ew_open(WIDTH)};
  pthread_mutex_init(&s.lock, NULL);
  start(threads, CALLERS, under_lock, &s);
  join(threads, CALLERS);
  ew_close(s.engine);
  pthread_mutex_destroy(&s.lock);

  stopping(1);
  stopping(WIDTH);
  printf("threads: right\n");
  return 0;
}
