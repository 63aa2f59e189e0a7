/* Rows of keys and values in 8 and 4 bits: blocks of GROUP columns, each with its own scale, so
 * that a token is stored without knowledge of others. The last block of a row is padded.
 *
 *     8 bits:  half scale, uint8 code[32]                column c = code * scale - 128 * scale
 *     4 bits:  half scale, half low, uint8 code[16]      column c = code * scale + low
 *
 * With 4 bits the low halves of the 16 bytes are columns 0 to 15 of the block, the high ones
 * columns 16 to 31. */
#ifndef EDGEWISE_ROWS_H
#define EDGEWISE_ROWS_H
#include "kernels/elementwise/each.h"

enum { GROUP = 32, ROW8 = 2 + GROUP, ROW4 = 4 + GROUP / 2 };

/* A half in every lane. */
EW_INLINE vf vf_splat_half(const uint8_t *p) {
#if VF == 16
  return (vf)_mm512_cvtph_ps(_mm256_set1_epi16((short)*(const m_u16 *)p));
#elif VF == 8
  return (vf)_mm256_cvtph_ps(_mm_set1_epi16((short)*(const m_u16 *)p));
#else
  return vf_splat(half_to_float(*(const m_u16 *)p));
#endif
}

/* Loads columns c0..c0+n-1 of a row, and up to the next multiple of VF; so is c0. */
EW_INLINE void ew_row_load(const uint8_t *row, int32_t c0, int32_t n, real *out, bool eight) {
  const uint8_t *block = row + (int64_t)((uint32_t)c0 / GROUP) * (eight ? ROW8 : ROW4);
  uint32_t at = (uint32_t)c0 % GROUP;
  for (; n > 0; block += eight ? ROW8 : ROW4, at = 0) {
    const vf scale = vf_splat_half(block),
             low = eight ? vf_splat(-128) * scale : vf_splat_half(block + 2);
    EW_PLAIN_FOR (; at < GROUP && n > 0; at += VF, n -= VF, out += VF) {
      vi code = vi_load_bytes(block + (eight ? 2 + at : 4 + at % (GROUP / 2)));
      if (!eight) code = at < GROUP / 2 ? code & 15 : code >> 4;
      vf_store(out, vf_fma(__builtin_convertvector(code, vf), scale, low));
    }
  }
}

/* Loads a whole block into registers. */
EW_INLINE void ew_block_load(const uint8_t *block, vf x[GROUP / VF], bool eight) {
  const vf scale = vf_splat_half(block),
           low = eight ? vf_splat(-128) * scale : vf_splat_half(block + 2);
  if (eight)
    for (int u = 0; u < GROUP / VF; u++)
      x[u] = vf_fma(__builtin_convertvector(vi_load_bytes(block + 2 + u * VF), vf), scale, low);
  else
    for (int u = 0; u < GROUP / 2 / VF; u++) {
      const vi both = vi_load_bytes(block + 4 + u * VF);
      x[u] = vf_fma(__builtin_convertvector(both & 15, vf), scale, low);
      x[GROUP / 2 / VF + u] = vf_fma(__builtin_convertvector(both >> 4, vf), scale, low);
    }
}
#endif
