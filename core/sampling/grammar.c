/* The machine of a grammar: states that are found when they are needed, and masks. */
#include "sampling/grammar.h"
#include "sampling/internal.h"
#include "sampling/vocabulary.h"

enum {
  END = -1,  /* labels of edges: the end of a rule */
  SKIP = -2, /* nothing is read */
  CALL = -3, /* CALL - entry: the rule that begins in state `entry` */
  UNKNOWN = 0,
  DEAD = 1, /* states: no text is possible */
  FIRST = 2,
  MAX_PLACES = 4096, /* in a state, while it is found */
  MAX_STATES = 1 << 24
};

/* A grammar: words[0] states, words[1] the first of them, words[2] edges; then where the edges of
 * each state begin, and one word more; then (label, target) of each edge. Label below 65536: a byte
 * from label % 256 to label / 256. */
typedef struct {
  int32_t label;
  uint32_t target;
} edge;
typedef struct {
  uint32_t states, first, edges;
  const uint32_t *at;
  const edge *edge;
} grammar;

typedef struct {
  uint32_t state, stack; /* stack 0: of the first rule */
} place;
typedef struct {
  uint32_t state, below; /* where a call returns to */
} frame;
typedef struct {
  uint32_t at, n, accepts, mask; /* its places; `mask`: 0, or where it is. Offsets in the heap */
  uint32_t next;                 /* transitions, by class */
} state_entry;

/* In the machine's memory: this, the tables with the sizes below, and a heap. */
typedef struct {
  uint32_t bytes, classes, states, frames, top, heap_words;
  uint32_t max_states, max_frames; /* powers of two */
  uint32_t n_places, accepts;      /* while a state is found */
  uint8_t class_of[256], byte_of[256];
} header;
typedef struct {
  header *h;
  place *places;         /* [MAX_PLACES] */
  uint32_t *seen;        /* [2 * MAX_PLACES] of places, plus 1 */
  state_entry *entry;    /* [max_states] */
  uint32_t *state_slots; /* [2 * max_states] */
  frame *frame;          /* [max_frames] */
  uint32_t *frame_slots; /* [2 * max_frames] */
  uint32_t *path;        /* [2 * (deepest + 2)] states and their transitions */
  uint32_t *heap;
} machine;

static grammar grammar_of(const uint32_t *p) {
  return (grammar){p[0], p[1], p[2], p + 3, (const edge *)(p + 4 + p[0])};
}

static int32_t check(const uint32_t *p, uint32_t words) {
  if (words < 4 || !p[0] || p[0] > MAX_STATES || p[2] > MAX_STATES || p[1] >= p[0] ||
      words != 4 + p[0] + 2 * p[2])
    return EW_S_BAD_GRAMMAR;
  const grammar g = grammar_of(p);
  for (uint32_t i = 0; i < g.states; i++)
    if (g.at[i] > g.at[i + 1]) return EW_S_BAD_GRAMMAR;
  if (g.at[0] || g.at[g.states] != g.edges) return EW_S_BAD_GRAMMAR;
  for (uint32_t i = 0; i < g.edges; i++) {
    const int32_t label = g.edge[i].label;
    const int good = label >= 0 ? label < 65536 && label % 256 <= label / 256
                                : (int64_t)label > CALL - (int64_t)g.states;
    if (!good || g.edge[i].target >= g.states) return EW_S_BAD_GRAMMAR;
  }
  return 0;
}

static machine machine_of(void *memory, const void *vocabulary) {
  machine m = {.h = memory};
  m.places = (place *)(m.h + 1);
  m.seen = (uint32_t *)(m.places + MAX_PLACES);
  m.entry = (state_entry *)(m.seen + 2 * MAX_PLACES);
  m.state_slots = (uint32_t *)(m.entry + m.h->max_states);
  m.frame = (frame *)(m.state_slots + 2 * (size_t)m.h->max_states);
  m.frame_slots = (uint32_t *)(m.frame + m.h->max_frames);
  m.path = m.frame_slots + 2 * (size_t)m.h->max_frames;
  m.heap = m.path + 2 * ((size_t)ew_s_trie(vocabulary).deepest + 2);
  return m;
}

static uint64_t fixed_words(uint64_t states, uint64_t frames, uint64_t deepest) {
  return sizeof(header) / 4 + MAX_PLACES * 4 + states * 7 + frames * 4 + 2 * (deepest + 2);
}

static uint32_t mask_words(uint32_t n) { return (n + 31) / 32; }

EW_API(ew_grammar_bytes)
int32_t ew_grammar_bytes(const uint32_t *program, uint32_t words, const void *vocabulary) {
  const int32_t error = check(program, words);
  if (error) return error;
  const ew_trie t = ew_s_trie(vocabulary);
  const uint64_t made = fixed_words(2048, 4096, t.deepest) + 128 * 1024;
  return (int32_t)(4 * (made + 96 * (uint64_t)mask_words(t.n)));
}

/* Memory of the heap; 0: there is none left. */
static uint32_t take(machine *m, uint32_t words) {
  header *h = m->h;
  if (words > h->heap_words - h->top) return 0;
  const uint32_t at = h->top;
  h->top += words;
  return at;
}

static uint32_t hash_of(uint32_t a, uint32_t b) {
  uint32_t x = a * 0x9E3779B1u ^ (b + 0x7F4A7C15u) * 0x85EBCA6Bu;
  x ^= x >> 15;
  x *= 0x2C1B3C6Du;
  return x ^ x >> 13;
}

/* The stack with `state` on top; -1 if there is no room. */
static int64_t pushed(machine *m, uint32_t state, uint32_t below) {
  header *h = m->h;
  const uint32_t last = 2 * h->max_frames - 1;
  uint32_t slot = hash_of(state, below) & last;
  for (; m->frame_slots[slot]; slot = (slot + 1) & last) {
    const frame *f = m->frame + m->frame_slots[slot];
    if (f->state == state && f->below == below) return m->frame_slots[slot];
  }
  if (h->frames == h->max_frames) return -1;
  m->frame[h->frames] = (frame){state, below};
  m->frame_slots[slot] = h->frames;
  return h->frames++;
}

static int32_t add(machine *m, uint32_t state, uint32_t stack) {
  header *h = m->h;
  const uint32_t last = 2 * MAX_PLACES - 1;
  uint32_t slot = hash_of(state, stack) & last;
  for (; m->seen[slot]; slot = (slot + 1) & last) {
    const place *p = m->places + m->seen[slot] - 1;
    if (p->state == state && p->stack == stack) return 0;
  }
  if (h->n_places == MAX_PLACES) return EW_S_AMBIGUOUS;
  m->places[h->n_places++] = (place){state, stack};
  m->seen[slot] = h->n_places;
  return 0;
}

/* Forgets the places, of which some are left in `seen`. */
static void forget(machine *m) {
  const uint32_t last = 2 * MAX_PLACES - 1;
  if (m->h->n_places > 256) {
    memset(m->seen, 0, 2 * MAX_PLACES * sizeof *m->seen);
  } else {
    /* their slots lie between where each belongs and the next free one */
    for (uint32_t i = 0; i < m->h->n_places; i++) {
      const place p = m->places[i];
      for (uint32_t slot = hash_of(p.state, p.stack) & last; m->seen[slot];
           slot = (slot + 1) & last)
        m->seen[slot] = 0;
    }
  }
  m->h->n_places = m->h->accepts = 0;
}

static int32_t follow(const grammar *g, machine *m, const edge *e, uint32_t stack) {
  if (e->label >= 0) return 0;
  if (e->label == SKIP) return add(m, e->target, stack);
  if (e->label == END) {
    if (stack) return add(m, m->frame[stack].state, m->frame[stack].below);
    m->h->accepts = 1;
    return 0;
  }
  /* a call after which the rule ends needs no frame */
  const edge *after = g->edge + g->at[e->target];
  if (g->at[e->target + 1] - g->at[e->target] == 1 && after->label == END)
    return add(m, (uint32_t)(CALL - e->label), stack);
  const int64_t made = pushed(m, e->target, stack);
  return made < 0 ? EW_S_FULL : add(m, (uint32_t)(CALL - e->label), (uint32_t)made);
}

static int less(place a, place b) {
  return a.state != b.state ? a.state < b.state : a.stack < b.stack;
}

static void sort(place *p, uint32_t n) {
  static const uint32_t gaps[] = {1750, 701, 301, 132, 57, 23, 10, 4, 1};
  for (uint32_t k = 0; k < sizeof gaps / sizeof *gaps; k++)
    for (uint32_t i = gaps[k]; i < n; i++) {
      const place one = p[i];
      uint32_t j = i;
      for (; j >= gaps[k] && less(one, p[j - gaps[k]]); j -= gaps[k]) p[j] = p[j - gaps[k]];
      p[j] = one;
    }
}

static int reads(const grammar *g, uint32_t state) {
  for (uint32_t i = g->at[state]; i < g->at[state + 1]; i++)
    if (g->edge[i].label >= 0) return 1;
  return 0;
}

/* The entry of a state with these places, which is new if there was none. */
static int32_t entered(machine *m, const place *places, uint32_t n, uint32_t accepts) {
  header *h = m->h;
  const uint32_t last = 2 * h->max_states - 1;
  uint32_t hash = accepts;
  for (uint32_t i = 0; i < n; i++) hash = hash_of(hash ^ places[i].state, places[i].stack);
  uint32_t slot = hash & last;
  for (; m->state_slots[slot]; slot = (slot + 1) & last) {
    const state_entry *s = m->entry + m->state_slots[slot];
    if (s->n == n && s->accepts == accepts && !memcmp(m->heap + s->at, places, n * sizeof *places))
      return (int32_t)m->state_slots[slot];
  }
  if (h->states == h->max_states) return EW_S_FULL;
  const uint32_t at = take(m, 2 * n + h->classes);
  if (!at) return EW_S_FULL;
  memcpy(m->heap + at, places, n * sizeof *places);
  memset(m->heap + at + 2 * n, 0, h->classes * sizeof *m->heap);
  m->entry[h->states] = (state_entry){at, n, accepts, 0, at + 2 * n};
  m->state_slots[slot] = h->states;
  return (int32_t)h->states++;
}

/* The state of the places found, and of all that follow without reading. */
static int32_t closed(const grammar *g, machine *m) {
  header *h = m->h;
  int32_t found = 0;
  for (uint32_t i = 0; i < h->n_places && found >= 0; i++) {
    const place p = m->places[i];
    for (uint32_t k = g->at[p.state]; k < g->at[p.state + 1] && found >= 0; k++)
      found = follow(g, m, g->edge + k, p.stack);
  }
  const uint32_t n = h->n_places, accepts = h->accepts;
  forget(m);
  if (found < 0) return found;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < n; i++)
    if (reads(g, m->places[i].state)) m->places[kept++] = m->places[i];
  if (!kept && !accepts) return DEAD;
  sort(m->places, kept);
  return entered(m, m->places, kept, accepts);
}

static int32_t step(const grammar *g, machine *m, uint32_t from, uint32_t class) {
  if (from == DEAD) return DEAD;
  const uint32_t at = m->entry[from].next + class;
  if (m->heap[at]) return (int32_t)m->heap[at];
  const int32_t byte = m->h->byte_of[class];
  const place *places = (const place *)(m->heap + m->entry[from].at);
  for (uint32_t i = 0; i < m->entry[from].n; i++)
    for (uint32_t k = g->at[places[i].state]; k < g->at[places[i].state + 1]; k++) {
      const edge e = g->edge[k];
      if (e.label < 0 || byte < e.label % 256 || byte > e.label / 256) continue;
      const int32_t error = add(m, e.target, places[i].stack);
      if (error) {
        forget(m);
        return error;
      }
    }
  const int32_t to = closed(g, m);
  if (to > 0) m->heap[at] = (uint32_t)to;
  return to;
}

EW_API(ew_grammar_open)
int32_t ew_grammar_open(const uint32_t *program, uint32_t words, const void *vocabulary,
                        void *memory, uint32_t bytes) {
  const int32_t error = check(program, words);
  if (error) return error;
  const grammar g = grammar_of(program);
  const ew_trie t = ew_s_trie(vocabulary);
  uint32_t states = 1024;
  while (states < 1 << 20 && 16 * fixed_words(2 * states, 4 * states, t.deepest) < bytes)
    states *= 2;
  const uint64_t fixed = fixed_words(states, 2 * states, t.deepest);
  if (4 * fixed + 4096 > bytes) return EW_S_FULL;
  header *h = memory;
  memset(memory, 0, 4 * fixed);
  h->bytes = bytes, h->max_states = states, h->max_frames = 2 * states;
  h->heap_words = (uint32_t)(bytes / 4 - fixed);
  h->top = 1, h->states = FIRST, h->frames = 1;
  /* bytes between the same ends of edges belong together */
  uint8_t begins[257] = {0};
  for (uint32_t i = 0; i < g.edges; i++)
    if (g.edge[i].label >= 0) begins[g.edge[i].label % 256] = begins[g.edge[i].label / 256 + 1] = 1;
  for (uint32_t b = 0; b < 256; b++) {
    if (!b || begins[b]) h->byte_of[h->classes++] = (uint8_t)b;
    h->class_of[b] = (uint8_t)(h->classes - 1);
  }
  machine m = machine_of(memory, vocabulary);
  const int32_t full = add(&m, g.first, 0);
  return full ? full : closed(&g, &m);
}

static int known(const machine *m, uint32_t state) { return state > 0 && state < m->h->states; }

EW_API(ew_grammar_next)
int32_t ew_grammar_next(const uint32_t *program, const void *vocabulary, void *memory,
                        uint32_t state, uint32_t token) {
  const grammar g = grammar_of(program);
  const ew_trie t = ew_s_trie(vocabulary);
  machine m = machine_of(memory, vocabulary);
  if (token >= t.n) return EW_S_BAD_TOKEN;
  if (!known(&m, state)) return EW_S_BAD_CALL;
  const uint32_t begin = token ? t.ends[token - 1] : 0;
  if (begin == t.ends[token]) return DEAD;
  int32_t to = (int32_t)state;
  for (uint32_t i = begin; i < t.ends[token] && to > DEAD; i++)
    to = step(&g, &m, (uint32_t)to, m.h->class_of[t.text[i]]);
  return to;
}

/* Sets the bits of the tokens that are possible in a state. */
static int32_t walk(const grammar *g, machine *m, const ew_trie *t, uint32_t state,
                    uint32_t *mask) {
  /* of each depth the state, and where its transitions are */
  uint32_t *path = m->path;
  const uint32_t *heap = m->heap;
  const uint8_t *class_of = m->h->class_of;
  path[0] = state, path[1] = m->entry[state].next;
  for (uint32_t i = 0; i < t->nodes;) {
    uint32_t *here = path + 2 * (size_t)t->depth[i];
    const uint32_t class = class_of[t->byte[i]];
    uint32_t to = heap[here[1] + class];
    if (!to) {
      const int32_t found = step(g, m, here[0], class);
      if (found < 0) return found;
      to = (uint32_t)found;
    }
    if (to == DEAD) {
      i = t->after[i];
      continue;
    }
    here[2] = to, here[3] = m->entry[to].next;
    for (uint32_t k = t->at[i]; k < t->at[i + 1]; k++)
      mask[t->order[k] / 32] |= 1u << (t->order[k] % 32);
    i++;
  }
  return 0;
}

/* Where the mask of a state is in the heap; below 0: an error. */
static int32_t mask_of(const grammar *g, machine *m, const ew_trie *t, uint32_t state) {
  if (!known(m, state) || state == DEAD) return EW_S_BAD_CALL;
  if (m->entry[state].mask) return (int32_t)m->entry[state].mask;
  const uint32_t words = mask_words(t->n), at = take(m, words + 1);
  if (!at) return EW_S_FULL;
  uint32_t *mask = m->heap + at + 1;
  memset(mask, 0, words * sizeof *mask);
  const int32_t error = walk(g, m, t, state, mask);
  if (error) return error;
  uint32_t some = 0;
  for (uint32_t i = 0; i < words; i++) some |= mask[i];
  m->heap[at] = some != 0;
  m->entry[state].mask = at;
  return (int32_t)at;
}

EW_API(ew_grammar_apply)
int32_t ew_grammar_apply(const uint32_t *program, const void *vocabulary, void *memory,
                         uint32_t state, float *scores, uint32_t vocab_size, const int32_t *ends,
                         uint32_t n_ends) {
  const grammar g = grammar_of(program);
  const ew_trie t = ew_s_trie(vocabulary);
  machine m = machine_of(memory, vocabulary);
  if (n_ends > MAX_PLACES) return EW_S_BAD_LIST;
  if (ew_s_check_ids(ends, n_ends, vocab_size)) return EW_S_BAD_TOKEN;
  const int32_t at = mask_of(&g, &m, &t, state);
  if (at < 0) return at;
  const uint32_t accepts = m.entry[state].accepts, *mask = m.heap + at + 1;
  if (!m.heap[at] && !accepts) return EW_S_STUCK;
  float *kept = (float *)m.places;
  for (uint32_t i = 0; i < n_ends; i++) kept[i] = scores[ends[i]];
  for (uint32_t i = 0; i < vocab_size; i++)
    if (i >= t.n || !(mask[i / 32] >> (i % 32) & 1)) scores[i] = NEG_INF;
  if (accepts)
    for (uint32_t i = 0; i < n_ends; i++) scores[ends[i]] = kept[i];
  if (m.heap[at]) return 0;
  int possible = 0;
  for (uint32_t i = 0; i < n_ends; i++) possible |= scores[ends[i]] > NEG_INF;
  if (!possible && n_ends) scores[ends[0]] = 0; /* such as before min_new_tokens */
  return 1;
}

EW_API(ew_grammar_mask)
int32_t ew_grammar_mask(const uint32_t *program, const void *vocabulary, void *memory,
                        uint32_t state, uint32_t *mask) {
  const grammar g = grammar_of(program);
  const ew_trie t = ew_s_trie(vocabulary);
  machine m = machine_of(memory, vocabulary);
  const int32_t at = mask_of(&g, &m, &t, state);
  if (at < 0) return at;
  memcpy(mask, m.heap + at + 1, mask_words(t.n) * sizeof *mask);
  return (int32_t)m.entry[state].accepts;
}
