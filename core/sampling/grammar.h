/* Tokens that a grammar allows next. The grammar is a table of byte edges and calls, made by
 * python/edgewise/logic/grammar/network.py, which explains it; a vocabulary holds the bytes of the
 * tokens and a trie of them. A machine walks the trie with the grammar's states.
 *
 * A state is a set of places in the grammar, each with the stack of the calls that led there.
 * States are found when they are first needed, and kept with their transitions and masks in the
 * machine's memory, as RE2 does for regular expressions; most steps find the mask that an earlier
 * one made.
 *
 * As in sampling.h: nothing allocates, all data lies in the caller's memory and is checked before
 * it is used, and results below 0 are errors (EW_S_* of sampling_fields.h). */
#ifndef EDGEWISE_GRAMMAR_H
#define EDGEWISE_GRAMMAR_H
#include "engine.h"
#include "gen/sampling_fields.h"

/* Sorts tokens by their bytes.
 * ends: where the bytes of each of the n tokens end; those of token i begin at ends[i - 1]. Tokens
 *   without bytes cannot be chosen.
 * order: 2 n + 1 words; receives the sorted ids, and in the last word their number.
 * Returns the size of the vocabulary in bytes. */
int32_t ew_vocabulary_sort(uint32_t n, const uint32_t *ends, const uint8_t *bytes, uint32_t *order);
/* Writes the vocabulary, of the size and with the order of ew_vocabulary_sort. */
int32_t ew_vocabulary_make(uint32_t n, const uint32_t *ends, const uint8_t *bytes,
                           const uint32_t *order, void *vocabulary);

/* Bytes of a machine that holds some hundred states and masks. */
int32_t ew_grammar_bytes(const uint32_t *program, uint32_t words, const void *vocabulary);
/* Checks a grammar of `words` 32-bit words, and makes a machine in `bytes` bytes of memory. Returns
 * the first state. The functions below take the same grammar and vocabulary.
 *
 * They return EW_S_FULL once the memory does not suffice. The machine then has to be made anew. */
int32_t ew_grammar_open(const uint32_t *program, uint32_t words, const void *vocabulary,
                        void *machine, uint32_t bytes);
/* The state after a token. */
int32_t ew_grammar_next(const uint32_t *program, const void *vocabulary, void *machine,
                        uint32_t state, uint32_t token);
/* Sets the scores of tokens that are not allowed to -inf. `ends`: ids of the n_ends tokens that end
 * a text; they are allowed where the grammar is complete. Where nothing else is, one of them is, in
 * any case. Returns 1 there, else 0. */
int32_t ew_grammar_apply(const uint32_t *program, const void *vocabulary, void *machine,
                         uint32_t state, float *scores, uint32_t vocab_size, const int32_t *ends,
                         uint32_t n_ends);
/* Copies the mask: bit i % 32 of word i / 32 is set if token i is allowed. Returns 1 if the text
 * may end here, else 0. */
int32_t ew_grammar_mask(const uint32_t *program, const void *vocabulary, void *machine,
                        uint32_t state, uint32_t *mask);
#endif
