/* Compares what kernels do with their operands with the access that their contracts declare: the
 * previous contents of what a kernel only writes, or uses as scratch, must change no result, and
 * what it only reads must stay as it is.
 *
 * Runs kernels directly, with random parameters and data and each operand in a heap block of its
 * own, twice: the second time with other previous contents. The address sanitizer finds accesses
 * outside of the declared reach. A third run changes an operand that is read: if no run shows that
 * a result depends on it, or that what is written or used as scratch is touched, the operand is
 * reported as unused; if no run shows it of its last element, its reach is reported as too long.
 * Usage as in common/fuzz.h; two more options:
 *
 *     --kernel NAME                 run this kernel only
 *     --suppose KERNEL.OPERAND=WHAT compare with another declaration than the contract's: read,
 *                                   write, update, scratch, or shorter or longer (by one
 *                                   element) */
#include "common/fuzz.h"

enum { MAX_OPERANDS = 1 << 16 /* bytes, total, without scratch */ };

static int only = -1; /* a kernel */
static struct {
  char operand[64]; /* "kernel.operand"; "": nothing is supposed */
  access_kind access;
  bool shorter, longer;
} supposed;

/* Of each operand, whether a run has shown that it, and its last element, is used. */
static struct {
  bool any, last;
} used[EW_KERNEL_COUNT][EW_MAX_OPERANDS];

typedef struct {
  int kernel, n;
  int32_t params[MAX_PARAMS];
  int64_t lo[EW_MAX_OPERANDS];
  size_t bytes[EW_MAX_OPERANDS], size[EW_MAX_OPERANDS]; /* size: of an element */
  access_kind access[EW_MAX_OPERANDS];
  uint8_t *data[EW_MAX_OPERANDS]; /* contents before the run; NULL: absent */
} call;

typedef struct {
  int32_t code, skip;
  uint8_t *data[EW_MAX_OPERANDS];
} result;

/* As access_of, but for the operand about which something else is supposed. */
static access_kind declared(int kernel, int operand, char *name, size_t room) {
  const access_kind access = access_of(kernel, operand, name, room);
  return !strcmp(name, supposed.operand) && !supposed.shorter && !supposed.longer ? supposed.access
                                                                                  : access;
}

/* Parameters that the kernel accepts, and the sizes of the operands. */
static bool prepare(call *c) {
  const ew_kernel *kernel = &ew_kernels[c->kernel];
  ew_reach reach[EW_MAX_OPERANDS];
  for (int tries = 0; tries < 1000; tries++) {
    bool empty = false;
    guess(c->kernel, c->params);
    if (work_of(c->kernel, c->params) > MAX_WORK / 16 ||
        ew_code.of[c->kernel].check(c->params, reach, &empty) != EW_CHECKED || empty)
      continue;
    int64_t total = 0;
    for (int i = 0; i < c->n && total <= MAX_OPERANDS; i++) {
      char name[64];
      c->access[i] = declared(c->kernel, i, name, sizeof name);
      c->lo[i] = reach[i].lo * reach[i].size;
      c->size[i] = (size_t)reach[i].size;
      c->bytes[i] = (size_t)((reach[i].hi - reach[i].lo) * reach[i].size);
      if (!strcmp(name, supposed.operand) && c->bytes[i]) {
        c->bytes[i] -= supposed.shorter ? c->size[i] : 0;
        c->bytes[i] += supposed.longer ? c->size[i] : 0;
      }
      if (access_of(c->kernel, i, name, sizeof name) != SCRATCH) total += (int64_t)c->bytes[i];
    }
    if (total > MAX_OPERANDS) continue;
    for (int i = 0; i < c->n; i++) {
      c->data[i] = NULL;
      if ((kernel->optional >> i & 1) && one_in(4)) continue;
      c->data[i] = malloc(c->bytes[i] ? c->bytes[i] : 1);
      if (!c->data[i]) abort();
      memset(c->data[i], 0, c->bytes[i]); /* also as indices of an axis of one element */
      if (!one_in(8))
        fill_random(c->data[i], c->bytes[i] < MAX_OPERANDS ? c->bytes[i] : MAX_OPERANDS);
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
  ew_context context = {.engine = engine};
  r->code = ew_code.of[c->kernel].run(&context, c->params, operand);
  r->skip = context.skip;
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

/* Records which operands the run has changed. */
static void see_writes(const call *c, const result *r) {
  for (int i = 0; i < c->n; i++) {
    if (!c->data[i] || c->access[i] == READ || !c->bytes[i]) continue;
    const size_t last = c->bytes[i] - c->size[i];
    used[c->kernel][i].any |= memcmp(c->data[i], r->data[i], c->bytes[i]) != 0;
    used[c->kernel][i].last |= memcmp(c->data[i] + last, r->data[i] + last, c->size[i]) != 0;
  }
}

static bool differs(const call *c, const result *a, const result *b) {
  if (a->code != b->code || a->skip != b->skip) return true;
  for (int i = 0; i < c->n; i++)
    if (c->data[i] && (c->access[i] == WRITE || c->access[i] == UPDATE) &&
        memcmp(a->data[i], b->data[i], c->bytes[i]))
      return true;
  return false;
}

/* Runs the kernel again with other contents of an operand that it reads, or of its last element.
 * True: this changes a result. */
static bool see_read(ew_engine *engine, call *c, const result *unchanged, int i, bool last) {
  uint8_t *kept = c->data[i];
  const size_t from = last ? c->bytes[i] - c->size[i] : 0;
  c->data[i] = malloc(c->bytes[i]);
  if (!c->data[i]) abort();
  memcpy(c->data[i], kept, c->bytes[i]);
  for (size_t at = from; at < c->bytes[i]; at++) c->data[i][at] ^= 1;
  if (one_in(2)) fill_random(c->data[i] + from, c->bytes[i] - from);
  result changed;
  run_call(engine, c, &changed);
  const bool seen = differs(c, unchanged, &changed);
  for (int k = 0; k < c->n; k++) free(changed.data[k]);
  free(c->data[i]), c->data[i] = kept;
  return seen;
}

static void see_reads(ew_engine *engine, call *c, const result *unchanged) {
  for (int i = 0; i < c->n; i++) {
    if (!c->data[i] || c->access[i] != READ || !c->bytes[i]) continue;
    if (!used[c->kernel][i].any) used[c->kernel][i].any = see_read(engine, c, unchanged, i, false);
    if (!used[c->kernel][i].last) used[c->kernel][i].last = see_read(engine, c, unchanged, i, true);
  }
}

static void run(ew_engine *engine) {
  const int any = (int)below(EW_KERNEL_COUNT);
  call c = {.kernel = only < 0 ? any : only};
  result first, second;
  c.n = ew_kernels[c.kernel].n_operands;
  if (!prepare(&c)) return;
  kernels[c.kernel].composed++;
  run_call(engine, &c, &first);
  if (first.code == EW_OK)
    ran++, kernels[c.kernel].ran++;
  else
    failed++, kernels[c.kernel].refused++;
  see_writes(&c, &first), see_reads(engine, &c, &first);
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

static _Noreturn void usage(const char *wrong) {
  fprintf(stderr, "check_contracts: not a kernel or an operand's declaration: %s\n", wrong);
  exit(2);
}

static void choose_kernel(const char *name) {
  for (int k = 0; k < EW_KERNEL_COUNT; k++)
    if (!strcmp(name_of(k), name)) only = k;
  if (only < 0) usage(name);
}

static void suppose(const char *text) {
  static const char *const words[] = {"read", "write", "update", "scratch", "shorter", "longer"};
  const char *what = strchr(text, '=');
  if (!what || (size_t)(what - text) >= sizeof supposed.operand) usage(text);
  bool known = false;
  for (int i = 0; i < 6; i++)
    if (!strcmp(what + 1, words[i]))
      known = true, supposed.shorter = i == 4, supposed.longer = i == 5,
      supposed.access = (access_kind)(i % 4);
  memcpy(supposed.operand, text, (size_t)(what - text));
  bool found = false;
  for (int k = 0; k < EW_KERNEL_COUNT; k++)
    for (int i = 0; i < ew_kernels[k].n_operands; i++) {
      char name[64];
      access_of(k, i, name, sizeof name), found |= !strcmp(name, supposed.operand);
    }
  if (!known || !found) usage(text);
}

int main(int argc, char **argv) {
  while (argc > 2 && (!strcmp(argv[1], "--kernel") || !strcmp(argv[1], "--suppose"))) {
    (strcmp(argv[1], "--kernel") ? suppose : choose_kernel)(argv[2]);
    argv[2] = argv[0], argv += 2, argc -= 2;
  }
  const int code = fuzz(argc, argv, run, false);
  for (int k = 0; k < EW_KERNEL_COUNT; k++)
    for (int i = 0; i < ew_kernels[k].n_operands && (only < 0 || only == k); i++) {
      char name[64];
      access_of(k, i, name, sizeof name);
      if (!kernels[k].ran)
        i = EW_MAX_OPERANDS, printf("never ran: %s\n", name_of(k));
      else if (!used[k][i].any)
        printf("unused: %s\n", name);
      else if (!used[k][i].last && access_of(k, i, name, sizeof name) != SCRATCH)
        printf("too long: %s\n", name);
    }
  return code;
}
