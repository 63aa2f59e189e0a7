/* ew_parallel: a thread pool that runs one job at a time.
 *
 * Each thread owns a share of the tasks: a contiguous range at the same relative position in every
 * job. What a thread has written, mostly rows of activations, is then still in its own cache when
 * the next job reads it, which costs a fraction of a transfer from another core. A thread that has
 * finished its share steals tasks from the others, which balances uneven tasks.
 *
 * The counter of a share holds the job number next to the index of the next task, so a thread that
 * arrives after a job has finished sees another number and leaves the counter alone. The job fields
 * that such a thread may have read are either valid, because the next job uses the other entry of
 * jobs[], or discarded when the exchange of the counter fails; this is why the fields are atomic.
 * Waiting spins briefly, then sleeps: with memory.atomic.wait in wasm, on a condition variable
 * elsewhere.
 *
 * In wasm, threads from the engine's share on (ew_share) take no tasks, and sleep until it grows:
 * the others steal their shares, so the number of tasks, and with it the results, stay. */
#if !defined(_POSIX_C_SOURCE)
#  define _POSIX_C_SOURCE 200809L
#endif
#include "vm.h"

#if !defined(__wasm__) || defined(__wasm_atomics__)
#  define THREADS 1
#endif

#if THREADS
#  include <stdatomic.h>
#  if !defined(__wasm__)
#    include "threads.h"
#  endif

#  if defined(__wasm__)
/* wasm has no pause instruction: one spin takes a few nanoseconds */
enum { MAX_THREADS = 64, SPINS = 20000 };
#  else
enum { MAX_THREADS = 64, SPINS = 1000 }; /* polls of a word before sleeping on it */
#  endif

/* bytes of a cache line, the minimum distance of words that different threads write */
enum { LINE = 64 };

struct ew_pool {
  ew_engine *engine;
  int32_t width;
  /* job j uses entry j % 2 */
  struct {
    _Atomic(uint32_t) count;
    _Atomic(ew_task) task;
    _Atomic(void *) arg;
  } jobs[2];
  /* job << 32 | index of the next task of the share */
  struct {
    _Atomic(uint64_t) next;
    char line[LINE - 8];
  } shares[MAX_THREADS];
  _Atomic(uint32_t) job; /* number of the current or last job; idle threads sleep on it */
  char line[LINE];
  _Atomic(uint32_t) done; /* number of finished tasks of the job; the caller sleeps on it */
  char other_line[LINE];
  _Atomic(uint32_t) sleepers; /* threads asleep or about to sleep, including the caller */
  _Atomic(uint32_t) serving, stop;
#  if !defined(__wasm__)
  ew_mutex mutex;
  ew_condition changed;
  ew_thread threads[MAX_THREADS];
  int32_t started;
#  endif
};

static void pause_briefly(void) {
#  if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#  elif defined(__aarch64__)
  __asm__ volatile("yield");
#  endif
}

#  if defined(__wasm__)
/* A separate exported function, so that no optimizer inlines it: the baseline compiler of V8 in
 * Node 20 loses locals that are live across this instruction (see wasm/Makefile). */
EW_API(ew_wait) __attribute__((noinline)) int32_t ew_wait(int32_t *word, int32_t value) {
  return __builtin_wasm_memory_atomic_wait32(word, value, -1);
}
#  endif

/* Blocks while *word equals `value`. It looks so often before it sleeps. */
static void sleep_on(ew_pool *p, _Atomic(uint32_t) *word, uint32_t value, int32_t spins) {
  for (int32_t i = 0; i < spins; i++) {
    if (atomic_load_explicit(word, memory_order_acquire) != value) return;
    pause_briefly();
  }
  atomic_fetch_add(&p->sleepers, 1);
#  if defined(__wasm__)
  while (atomic_load(word) == value) ew_wait((int32_t *)word, (int32_t)value);
#  else
  ew_mutex_lock(&p->mutex);
  while (atomic_load(word) == value) ew_condition_wait(&p->changed, &p->mutex);
  ew_mutex_unlock(&p->mutex);
#  endif
  atomic_fetch_sub(&p->sleepers, 1);
}

/* Call after changing a word. A thread that still sees the old value has already incremented
 * `sleepers`. */
static void wake(ew_pool *p, _Atomic(uint32_t) *word) {
  if (!atomic_load(&p->sleepers)) return;
#  if defined(__wasm__)
  __builtin_wasm_memory_atomic_notify((int *)word, (unsigned)-1);
#  else
  (void)word;
  ew_mutex_lock(&p->mutex);
  ew_condition_wake_all(&p->changed);
  ew_mutex_unlock(&p->mutex);
#  endif
}

/* Index of the first task of a thread's share. */
static uint32_t first_of(const ew_pool *p, uint32_t count, int32_t thread) {
  return (uint32_t)(((uint64_t)count * (uint32_t)thread + (uint32_t)p->width - 1) /
                    (uint32_t)p->width);
}

/* Runs tasks of the job until none is left: first those of the thread's own share, then those of
 * the others. */
static void work(ew_pool *p, uint32_t job, int32_t thread) {
  uint32_t finished = 0, count = 0;
  for (int32_t i = 0; i < p->width; i++) {
    const int32_t owner = thread + i < p->width ? thread + i : thread + i - p->width;
    for (uint64_t next;;) {
      next = atomic_load(&p->shares[owner].next);
      count = atomic_load(&p->jobs[job % 2].count);
      ew_task task = atomic_load(&p->jobs[job % 2].task);
      void *arg = atomic_load(&p->jobs[job % 2].arg);
      if (next >> 32 != job || (uint32_t)next >= first_of(p, count, owner + 1)) break;
      if (!atomic_compare_exchange_weak(&p->shares[owner].next, &next, next + 1)) continue;
      if (!ew_engine_stopping(p->engine)) task(arg, (int32_t)(uint32_t)next, thread);
      finished++;
    }
  }
  if (finished && atomic_fetch_add(&p->done, finished) + finished == count) wake(p, &p->done);
}

/* Sleeps while the engine's share leaves a thread out. Returns whether it did. */
static bool left_out(ew_pool *p, int32_t thread) {
#  if defined(__wasm__)
  int32_t *word = &p->engine->share, n;
  bool slept = false;
  while ((n = __atomic_load_n(word, __ATOMIC_SEQ_CST)) <= thread && !atomic_load(&p->stop))
    ew_wait(word, n), slept = true;
  return slept;
#  else
  return (void)p, (void)thread, false;
#  endif
}

static void serve(ew_pool *p, int32_t thread) {
  uint32_t seen = 0;
  while (!atomic_load(&p->stop)) {
    /* shares may change often: only after a job is another one likely at once */
    const bool slept = left_out(p, thread);
    uint32_t job = atomic_load(&p->job);
    if (job != seen) work(p, seen = job, thread);
    sleep_on(p, &p->job, seen, slept ? 0 : SPINS);
  }
  atomic_fetch_sub(&p->serving, 1);
  wake(p, &p->serving);
}

#  if !defined(__wasm__)
typedef struct {
  ew_pool *pool;
  int32_t index;
} thread_start;

EW_THREAD_MAIN(thread_main, start) {
  thread_start s = *(thread_start *)start;
  ew_free(start);
  serve(s.pool, s.index);
  return EW_THREAD_RESULT;
}
#  endif

ew_pool *ew_pool_open(ew_engine *engine, int32_t threads) {
  ew_pool *p = ew_alloc(sizeof *p);
  if (!p) return NULL;
  p->engine = engine;
  p->width = threads < 1 ? 1 : threads > MAX_THREADS ? MAX_THREADS : threads;
#  if !defined(__wasm__)
  ew_mutex_open(&p->mutex);
  ew_condition_open(&p->changed);
  /* If the system starts fewer threads than requested, the remaining ones run all tasks. */
  for (int32_t i = 1; i < p->width; i++) {
    thread_start *s = ew_alloc(sizeof *s);
    if (!s) break;
    *s = (thread_start){p, i};
    atomic_fetch_add(&p->serving, 1);
    if (ew_thread_start(&p->threads[p->started], thread_main, s)) {
      atomic_fetch_sub(&p->serving, 1);
      ew_free(s);
      break;
    }
    p->started++;
  }
  p->width = p->started + 1;
#  endif
  return p;
}

void ew_pool_close(ew_pool *p) {
  atomic_store(&p->stop, 1);
  atomic_fetch_add(&p->job, 1);
  wake(p, &p->job);
  ew_pool_share(p, p->width);
#  if defined(__wasm__)
  for (uint32_t n; (n = atomic_load(&p->serving));) sleep_on(p, &p->serving, n, SPINS);
#  else
  for (int32_t i = 0; i < p->started; i++) ew_thread_join(p->threads[i]);
  ew_mutex_close(&p->mutex);
  ew_condition_close(&p->changed);
#  endif
  ew_free(p);
}

int32_t ew_pool_width(const ew_pool *p) { return p->width; }

void ew_pool_share(ew_pool *p, int32_t threads) {
  const int32_t before = __atomic_exchange_n(&p->engine->share, threads, __ATOMIC_SEQ_CST);
#  if defined(__wasm__)
  if (threads > before) __builtin_wasm_memory_atomic_notify(&p->engine->share, (unsigned)-1);
#  else
  (void)before;
#  endif
}

#  if defined(__wasm__)
EW_API(ew_worker) void ew_worker(ew_engine *e, int32_t index) {
  if (index < 1 || index >= e->pool->width) return;
  atomic_fetch_add(&e->pool->serving, 1);
  serve(e->pool, index);
}
#  endif

void ew_parallel(ew_context *c, int32_t count, ew_task task, void *arg) {
  ew_pool *p = c->engine->pool;
  if (count <= 1 || p->width == 1) {
    for (int32_t i = 0; i < count && !ew_engine_stopping(c->engine); i++) task(arg, i, 0);
    return;
  }
  uint32_t job = atomic_load(&p->job) + 1;
  atomic_store(&p->done, 0);
  atomic_store(&p->jobs[job % 2].count, (uint32_t)count);
  atomic_store(&p->jobs[job % 2].task, task);
  atomic_store(&p->jobs[job % 2].arg, arg);
  /* from here on other threads can take tasks */
  for (int32_t i = 0; i < p->width; i++)
    atomic_store(&p->shares[i].next, (uint64_t)job << 32 | first_of(p, (uint32_t)count, i));
  atomic_store(&p->job, job);
  wake(p, &p->job);
  work(p, job, 0);
  for (uint32_t n; (n = atomic_load(&p->done)) != (uint32_t)count;) sleep_on(p, &p->done, n, SPINS);
}

#else

struct ew_pool {
  int32_t width;
};

ew_pool *ew_pool_open(ew_engine *engine, int32_t threads) {
  (void)engine, (void)threads;
  ew_pool *p = ew_alloc(sizeof *p);
  if (p) p->width = 1;
  return p;
}
void ew_pool_close(ew_pool *p) { ew_free(p); }
int32_t ew_pool_width(const ew_pool *p) { return p->width; }
void ew_pool_share(ew_pool *p, int32_t threads) { (void)p, (void)threads; }

void ew_parallel(ew_context *c, int32_t count, ew_task task, void *arg) {
  for (int32_t i = 0; i < count && !ew_engine_stopping(c->engine); i++) task(arg, i, 0);
}
#endif

bool ew_stopping(const ew_context *c) { return ew_engine_stopping(c->engine); }

int32_t ew_parallel_width(const ew_context *c) { return ew_pool_width(c->engine->pool); }
