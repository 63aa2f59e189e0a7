/* Vocabularies and grammars of all kinds, well-formed and damaged: masks have the tokens that can
 * be read one by one, whatever was asked before, and memory of any size is enough or is refused.
 * Each buffer is a heap block of exactly its size. For usage see common/fuzz.h. */
#include "common/fuzz.h"
#include "sampling/grammar.h"

enum { DEAD = 1, END = -1, SKIP = -2, CALL = -3, MAX_TOKENS = 300 };

static void *block(size_t bytes) {
  uint8_t *p = malloc(bytes ? bytes : 1);
  if (!p) abort();
  return p;
}

static uint8_t any_byte(void) { return one_in(20) ? (uint8_t)next() : (uint8_t)('a' + below(4)); }

/* A vocabulary; NULL: it was refused. */
static void *any_vocabulary(uint32_t n) {
  uint32_t *ends = block(4 * (size_t)n), total = 0;
  for (uint32_t i = 0; i < n; i++) {
    total += one_in(8) ? 0 : one_in(60) ? below(5000) : 1 + below(5);
    ends[i] = one_in(2000) ? (uint32_t)telling() : total;
  }
  const int bad = ends[n - 1] != total;
  uint8_t *bytes = block(total);
  for (uint32_t i = 0; i < total; i++) bytes[i] = any_byte();
  uint32_t *order = block(4 * (2 * (size_t)n + 1));
  int32_t size = bad ? -1 : ew_vocabulary_sort(n, ends, bytes, order);
  void *made = NULL;
  if (size > 0) {
    made = block((size_t)size);
    ew_vocabulary_make(n, ends, bytes, order, made);
  }
  free(ends), free(bytes), free(order);
  return made;
}

/* A grammar: edges of random kinds, mostly those that read. */
static uint32_t *any_program(uint32_t *words) {
  const uint32_t states = 1 + below(one_in(4) ? 60 : 8), edges = below(3 * states + 1);
  *words = 4 + states + 2 * edges;
  uint32_t *p = block(4 * (size_t)*words), *at = p + 3, *e = p + 4 + states;
  p[0] = states, p[1] = below(states), p[2] = edges;
  at[0] = 0, at[states] = edges;
  for (uint32_t i = 1; i < states; i++) {
    const uint32_t left = edges - at[i - 1];
    at[i] = at[i - 1] + below((left < 6 ? left : 6) + 1);
  }
  for (uint32_t i = 0; i < edges; i++, e += 2) {
    const uint32_t low = any_byte(), more = one_in(3) ? below(256 - low) : 0;
    switch (below(8)) {
    case 0: e[0] = (uint32_t)END; break;
    case 1: e[0] = (uint32_t)SKIP; break;
    case 2: e[0] = (uint32_t)(CALL - (int32_t)below(states)); break;
    default: e[0] = low + 256 * (low + more);
    }
    e[1] = below(states);
  }
  if (one_in(20)) p[below(*words)] = (uint32_t)telling();
  return p;
}

typedef struct {
  uint32_t *program;
  void *vocabulary, *machine;
  uint32_t n;
} place_of;

/* Compares the mask of a state with the tokens one by one. Returns an allowed token, -1: there is
 * none, -2: the memory is full or the grammar ambiguous. */
static int32_t check_state(const place_of *p, uint32_t state, uint32_t *mask) {
  const int32_t ends = ew_grammar_mask(p->program, p->vocabulary, p->machine, state, mask);
  if (ends < 0) return -2;
  int32_t chosen = -1;
  uint32_t seen = 0;
  for (uint32_t i = 0; i < p->n; i++) {
    const int32_t to = ew_grammar_next(p->program, p->vocabulary, p->machine, state, i);
    if (to < 0) return -2;
    if ((mask[i / 32] >> i % 32 & 1) != (to != DEAD)) die("a mask is wrong", "grammar");
    if (to != DEAD && !below(++seen)) chosen = (int32_t)i;
  }
  float *scores = block(4 * (size_t)p->n);
  for (uint32_t i = 0; i < p->n; i++) scores[i] = (float)i;
  const int32_t end = (int32_t)below(p->n);
  const int32_t over =
      ew_grammar_apply(p->program, p->vocabulary, p->machine, state, scores, p->n, &end, 1);
  if (over != (seen ? 0 : ends ? 1 : EW_S_STUCK)) die("an end is wrong", "grammar");
  for (uint32_t i = 0; over >= 0 && i < p->n; i++) {
    const int allowed = (mask[i / 32] >> i % 32 & 1) || ((int32_t)i == end && (ends || over));
    if (scores[i] != (allowed ? (float)i : -__builtin_inff())) die("a score is wrong", "grammar");
  }
  free(scores);
  return chosen;
}

static void run(ew_engine *engine) {
  (void)engine;
  place_of p = {.n = 1 + below(MAX_TOKENS)};
  p.vocabulary = any_vocabulary(p.n);
  uint32_t words;
  p.program = any_program(&words);
  const int32_t bytes = p.vocabulary ? ew_grammar_bytes(p.program, words, p.vocabulary) : -1;
  if (bytes < 0) {
    failed++;
    free(p.program), free(p.vocabulary);
    return;
  }
  const uint32_t room = one_in(4) ? below((uint32_t)bytes) : (uint32_t)bytes;
  p.machine = block(room);
  uint32_t *mask = block(4 * (size_t)((p.n + 31) / 32));
  int32_t state =
      room < 4096 ? -1 : ew_grammar_open(p.program, words, p.vocabulary, p.machine, room);
  if (state < 0) skipped++;
  for (uint32_t step = 0; state > DEAD && step < 12; step++) {
    const int32_t token = check_state(&p, (uint32_t)state, mask);
    if (token < 0) break;
    state = ew_grammar_next(p.program, p.vocabulary, p.machine, (uint32_t)state, (uint32_t)token);
    if (state == DEAD) die("an allowed token cannot be read", "grammar");
    ran++;
  }
  free(mask), free(p.machine), free(p.program), free(p.vocabulary);
}

int main(int argc, char **argv) { return fuzz(argc, argv, run, false); }
