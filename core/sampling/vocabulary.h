/* A vocabulary in memory. */
#ifndef EDGEWISE_VOCABULARY_H
#define EDGEWISE_VOCABULARY_H
#include "sampling/grammar.h"

#define MAX_TOKEN 4096u     /* longer tokens are not chosen */
#define MAX_TEXT (1u << 28) /* bytes of all tokens */

typedef struct {
  uint32_t n, sorted, nodes, deepest; /* deepest: bytes of the longest token */
} ew_vocabulary;

/* Its parts. The nodes of the trie are in preorder. */
typedef struct {
  uint32_t n, nodes, deepest;
  const uint32_t *ends;  /* [n] of the bytes of each token in text */
  const uint32_t *order; /* ids in the order of their bytes */
  const uint32_t *at;    /* [nodes + 1] the tokens that end in node i: order[at[i]..at[i + 1]) */
  const uint32_t *after; /* [nodes] the first node that is not below node i */
  const uint16_t *depth; /* [nodes] bytes before it */
  const uint8_t *byte;   /* [nodes] */
  const uint8_t *text;
} ew_trie;

ew_trie ew_s_trie(const void *vocabulary);
#endif
