/* Rows of keys and values in 8 and 4 bits: blocks of GROUP columns, each with its own scale, so
 * that a token is stored without knowledge of others. The last block of a row is padded.
 *
 *     8 bits:  half scale, uint8 code[32]          column c = (code - 128) * scale
 *     4 bits:  uint16 head, uint8 code[16]         column c = (code - zero) * scale
 *
 * With 4 bits the low halves of the 16 bytes are columns 0 to 15 of the block, the high ones
 * columns 16 to 31. The low 4 bits of the head are the zero, the other 12 the scale: an exponent of
 * 5 bits as a half has it, but without infinities, and 7 bits of fraction. */
#ifndef EDGEWISE_ROWS_H
#define EDGEWISE_ROWS_H
#include "kernels/elementwise/each.h"

enum {
  GROUP = 32,
  ROW8 = 2 + GROUP,
  ROW4 = 2 + GROUP / 2,
  MAX_ROW = 512, /* columns of a row, at most */
  MAX_BLOCKS = MAX_ROW / GROUP,
  ROW_KEYS = 128, /* keys whose scores are computed at a time, at most */
  ABREAST = 3     /* queries that share what was read of a row, at most */
};

/* Scale and zero of blocks, from their heads. */
EW_INLINE void ew_row_head(vi head, vf *scale, vf *zero, bool eight) {
  if (eight) { /* as half_to_float */
    const vi special = ((head & 0x7c00) == 0x7c00) & 0x7f800000;
    *scale = (vf)((vi)((vf)((head & 0x7fff) << 13) * 0x1p112f) | special | (head & 0x8000) << 16);
    *zero = vf_splat(128);
  } else {
    *scale = (vf)((head & 0xfff0) << 12) * 0x1p112f;
    *zero = __builtin_convertvector(head & 15, vf);
  }
}

/* Loads columns c0..c0+n-1 of a row, and up to the next multiple of VF; so is c0. */
EW_INLINE void ew_row_load(const uint8_t *row, int32_t c0, int32_t n, real *out, bool eight) {
  const uint8_t *block = row + (int64_t)((uint32_t)c0 / GROUP) * (eight ? ROW8 : ROW4);
  uint32_t at = (uint32_t)c0 % GROUP;
  for (; n > 0; block += eight ? ROW8 : ROW4, at = 0) {
    vf scale, zero;
    ew_row_head(vi_splat(*(const m_u16 *)block), &scale, &zero, eight);
    EW_PLAIN_FOR (; at < GROUP && n > 0; at += VF, n -= VF, out += VF) {
      vi code = vi_load_bytes(block + 2 + (eight ? at : at % (GROUP / 2)));
      if (!eight) code = at < GROUP / 2 ? code & 15 : code >> 4;
      vf_store(out, (__builtin_convertvector(code, vf) - zero) * scale);
    }
  }
}

/* A query as integers: of 8 bits for rows of 4 where there are products of bytes, else of 16. The
 * digits are in the order in which rows are read (rows.c). */
typedef struct {
  int32_t digits[MAX_BLOCKS * GROUP / 2];
  float sums[MAX_BLOCKS]; /* of the integers of each block */
  float scale;
} ew_row_query;

void ew_row_queries(const real *const *q, int32_t n, int32_t dim, bool eight, ew_row_query *to);

/* s[i][j] = queries i < n times keys j < keys in rows of `blocks` blocks; what follows in s up to a
 * whole vector may be anything. `stride` is that of rows, in bytes. The numbers of a query do not
 * depend on what else is computed. */
void ew_row_scores(const ew_row_query *q, int32_t n, int32_t blocks, const uint8_t *k,
                   int64_t stride, int32_t keys, float (*s)[ROW_KEYS], bool eight);

/* y[i] += the sum of weights s[i][j] times values j, for columns c < cols; the weights that follow
 * up to a whole vector are 0. */
void ew_row_sums(float (*s)[ROW_KEYS], int32_t n, const uint8_t *v, int64_t stride, int32_t keys,
                 int32_t cols, real *const *y, bool eight);
#endif
