/* Compares what kernels do with their operands with the access that their contracts declare: the
 * previous contents of what a kernel only writes, or uses as scratch, must change no result, and
 * what it only reads must stay as it is.
 *
 * Runs kernels directly, with random parameters and data and each operand in a heap block of its
 * own, twice: the second time with other previous contents. For usage see common/fuzz.h. */
#include "common/fuzz.h"

enum { MOST_OPERANDS = 1 << 16 /* bytes, total */ };

typedef struct {
  int kernel, n;
  int32_t params[MAX_PARAMS];
  int64_t lo[EW_MAX_OPERANDS];
  size_t bytes[EW_MAX_OPERANDS];
  access_kind access[EW_MAX_OPERANDS];
  uint8_t *data[EW_MAX_OPERANDS]; /* contents before the run; NULL: absent */
} call;

typedef struct {
  int32_t code;
  uint8_t *data[EW_MAX_OPERANDS];
} result;

/* Parameters that the kernel accepts, and the sizes of the operands. */
static bool prepare(call *c) {
  const ew_kernel *kernel = &ew_kernels[c->kernel];
  ew_reach reach[EW_MAX_OPERANDS];
  for (int tries = 0; tries < 1000; tries++) {
    bool empty = false;
    guess(c->kernel, c->params);
    if (work_of(c->kernel, c->params) > MOST_WORK / 16 ||
        ew_code.of[c->kernel].check(c->params, reach, &empty) != EW_CHECKED || empty)
      continue;
    int64_t total = 0;
    for (int i = 0; i < c->n && total <= MOST_OPERANDS; i++) {
      c->lo[i] = reach[i].lo * reach[i].size;
      c->bytes[i] = (size_t)((reach[i].hi - reach[i].lo) * reach[i].size);
      total += (int64_t)c->bytes[i];
    }
    if (total > MOST_OPERANDS) continue;
    for (int i = 0; i < c->n; i++) {
      char name[64];
      c->access[i] = access_of(c->kernel, i, name, sizeof name);
      c->data[i] = NULL;
      if ((kernel->optional >> i & 1) && one_in(4)) continue;
      c->data[i] = malloc(c->bytes[i] ? c->bytes[i] : 1);
      if (!c->data[i]) abort();
      memset(c->data[i], 0, c->bytes[i]), fill_random(c->data[i], c->bytes[i]);
    }
    return true;
  }
  return false;
}

/* Runs the kernel on copies of the operands. */
static void run_call(ew_engine *engine, const call *c, result *r) {
  void *operand[EW_MAX_OPERANDS];
  for (int i = 0; i < c->n; i++) {
    operand[i] = r->data[i] = NULL;
    if (!c->data[i]) continue;
    r->data[i] = malloc(c->bytes[i] ? c->bytes[i] : 1);
    if (!r->data[i]) abort();
    memcpy(r->data[i], c->data[i], c->bytes[i]);
    operand[i] = r->data[i] - c->lo[i];
  }
  ew_context context = {engine, 0};
  r->code = ew_code.of[c->kernel].run(&context, c->params, operand);
}

/* Each byte of operand i must be the same after both runs, or be left alone in both. */
static bool same(const call *c, const result *first, const result *second, uint8_t *const *before,
                 int i) {
  for (size_t at = 0; at < c->bytes[i]; at++)
    if (first->data[i][at] != second->data[i][at] &&
        !(before[i] && first->data[i][at] == before[i][at] &&
          second->data[i][at] == c->data[i][at]))
      return false;
  return true;
}

static void run(ew_engine *engine) {
  call c = {.kernel = (int)below(EW_KERNEL_COUNT)};
  result first, second;
  c.n = ew_kernels[c.kernel].n_operands;
  if (!prepare(&c)) return;
  kernels[c.kernel].composed++;
  run_call(engine, &c, &first);
  if (first.code == EW_OK)
    ran++, kernels[c.kernel].ran++;
  else
    failed++, kernels[c.kernel].refused++;
  uint8_t *before[EW_MAX_OPERANDS];
  for (int i = 0; i < c.n; i++) {
    before[i] = NULL;
    if (!c.data[i] || (c.access[i] != WRITE && c.access[i] != SCRATCH)) continue;
    before[i] = malloc(c.bytes[i] ? c.bytes[i] : 1);
    if (!before[i]) abort();
    memcpy(before[i], c.data[i], c.bytes[i]);
    for (size_t at = 0; at < c.bytes[i]; at++) c.data[i][at] ^= 0xa5;
  }
  run_call(engine, &c, &second);
  if (second.code != first.code)
    die("the error code depends on what is not read", name_of(c.kernel));
  for (int i = 0; i < c.n; i++) {
    char name[64];
    access_of(c.kernel, i, name, sizeof name);
    if (c.data[i] && c.access[i] == READ && memcmp(c.data[i], second.data[i], c.bytes[i]))
      die("an operand that is only read was written", name);
    if (first.code == EW_OK && c.data[i] && (c.access[i] == WRITE || c.access[i] == UPDATE) &&
        !same(&c, &first, &second, before, i))
      die("a result depends on previous contents that the kernel may not read", name);
  }
  for (int i = 0; i < c.n; i++)
    free(before[i]), free(c.data[i]), free(first.data[i]), free(second.data[i]);
}

int main(int argc, char **argv) { return fuzz(argc, argv, run, false); }
