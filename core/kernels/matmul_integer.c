/* y = (a - a_zero) @ (b - b_zero) over bytes, in int32 (which wraps, as everywhere).
 *
 * Zero points are subtracted when a and b are packed as 16-bit integers, where the differences fit exactly. Packed b pairs two
 * rows, [k/2][NC][2], so that one instruction multiplies and adds two steps of k. */
#include "../kernel.h"
#include "../simd.h"

enum { MR = 4, NC = 8, PANELS = 16, PACKED = 131072 /* floats for packed b, and again for packed a */ };

typedef struct {
  const ew_matmul_integer_params *p;
  const uint8_t *a, *b, *a_zero, *b_zero;
  int_m *y;
  short_m *packed_b, *packed_a;
  int64_t a_share;                      /* shorts of packed_a for each thread */
  int32_t j0, nc, k0, kc, pairs, mc, nt; /* block of b; rows and columns of a task */
  int32_t column_tasks;
  bool a_signed, b_signed;
} integer_block;

EW_INLINE int32_t at_most(int32_t x, int32_t limit) { return x < limit ? x : limit; }
EW_INLINE int32_t blocks_of(int32_t x, int32_t block) { return x / block + (x % block != 0); }
EW_INLINE int32_t byte_at(const uint8_t *p, int64_t i, bool is_signed) { return is_signed ? (int8_t)p[i] : p[i]; }
EW_INLINE int32_t zero_at(const uint8_t *zeros, int32_t count, int32_t i, bool is_signed) { return zeros ? byte_at(zeros, count > 1 ? i : 0, is_signed) : 0; }
EW_INLINE i16x8 shorts_at(const uint8_t *p, bool is_signed) {
  typedef int8_t i8x8_m __attribute__((vector_size(8), aligned(1), may_alias));
  return is_signed ? __builtin_convertvector(*(const i8x8_m *)p, i16x8) : (i16x8)__builtin_convertvector(*(const u8x8_m *)p, u16x8);
}

/* Columns j.. as panels, `panels` whole ones along the rows, since memory likes to be read in order; or one of n < NC columns. */
EW_INLINE void pack_panels(const integer_block *s, int32_t j, int32_t panels, int32_t n, short_m *packed, bool is_signed) {
  const ew_matmul_integer_params *p = s->p;
  int16_t zero[PANELS * NC];
  for (int32_t c = 0; c < panels * NC; c++) zero[c] = (int16_t)(c < n ? zero_at(s->b_zero, p->b_zeros, j + c, is_signed) : 0);
  for (int32_t q = 0; q < s->pairs; q++, packed += 2 * NC) {
    const uint8_t *b = s->b + (int64_t)(s->k0 + 2 * q) * p->n + j;
    bool both = 2 * q + 1 < s->kc;
    if (n >= NC)
      for (int32_t i = 0; i < panels; i++) {
        short_m *panel = packed + (int64_t)i * s->pairs * 2 * NC;
        i16x8 z = *(const i16x8_m *)(zero + i * NC), x = shorts_at(b + i * NC, is_signed) - z, y = both ? shorts_at(b + p->n + i * NC, is_signed) - z : (i16x8){0};
        *(i16x8_m *)panel = __builtin_shufflevector(x, y, 0, 8, 1, 9, 2, 10, 3, 11);
        *(i16x8_m *)(panel + 8) = __builtin_shufflevector(x, y, 4, 12, 5, 13, 6, 14, 7, 15);
      }
    else
      for (int32_t c = 0; c < NC; c++) {
        packed[2 * c] = (int16_t)(c < n ? byte_at(b, c, is_signed) - zero[c] : 0);
        packed[2 * c + 1] = (int16_t)(c < n && both ? byte_at(b + p->n, c, is_signed) - zero[c] : 0);
      }
  }
}

static void pack_b_task(void *arg, int32_t index, int32_t thread) {
  const integer_block *s = arg;
  (void)thread;
  int32_t from = index * s->nt, to = from + at_most(s->nc - from, s->nt);
  for (int32_t j = from, n; j < to; j += n) {
    short_m *packed = s->packed_b + (int64_t)j * s->pairs * 2;
    n = at_most(to - j, PANELS * NC);
    if (n >= NC) n = n / NC * NC;
    if (s->b_signed) pack_panels(s, s->j0 + j, blocks_of(n, NC), n, packed, true);
    else pack_panels(s, s->j0 + j, blocks_of(n, NC), n, packed, false);
  }
}

EW_INLINE void pack_row(const uint8_t *a, int32_t n, int32_t zero, short_m *out, bool is_signed) {
  i16x8 z = (int16_t)zero - (i16x8){0};
  int32_t q = 0;
  for (; q + 8 <= n; q += 8) *(i16x8_m *)(out + q) = shorts_at(a + q, is_signed) - z;
  for (; q < n; q++) out[q] = (int16_t)(byte_at(a, q, is_signed) - zero);
  if (n & 1) out[n] = 0;
}

static __attribute__((noinline)) void tile(int32_t pairs, const short_m *a, int64_t a_row, const short_m *b, int32_t *out) {
  i32x4 y[MR][2];
  for (int r = 0; r < MR; r++) y[r][0] = y[r][1] = (i32x4){0};
  for (int32_t q = 0; q < pairs; q++, b += 2 * NC) {
    i16x8 b0 = *(const i16x8_m *)b, b1 = *(const i16x8_m *)(b + NC);
    for (int r = 0; r < MR; r++) {
      i16x8 x = (i16x8)i32x4_load_splat((const int_m *)(a + r * a_row + 2 * q));
      y[r][0] = i32x4_dot_shorts(x, b0, y[r][0]), y[r][1] = i32x4_dot_shorts(x, b1, y[r][1]);
    }
  }
  for (int r = 0; r < MR; r++) *(i32x4_m *)(out + r * NC) = y[r][0], *(i32x4_m *)(out + r * NC + 4) = y[r][1];
}

static void block_task(void *arg, int32_t index, int32_t thread) {
  const integer_block *s = arg;
  const ew_matmul_integer_params *p = s->p;
  int32_t i0 = index / s->column_tasks * s->mc, mc = at_most(p->m - i0, s->mc);
  int32_t from = index % s->column_tasks * s->nt, to = from + at_most(s->nc - from, s->nt);
  short_m *packed = s->packed_a + s->a_share * thread;
  int64_t a_row = (int64_t)s->pairs * 2;
  for (int32_t i = 0; i < blocks_of(mc, MR) * MR; i++) { /* rows that do not exist are the last one again */
    int32_t row = i0 + at_most(i, mc - 1), zero = zero_at(s->a_zero, p->a_zeros, row, s->a_signed);
    const uint8_t *a = s->a + (int64_t)row * p->k + s->k0;
    if (s->a_signed) pack_row(a, s->kc, zero, packed + i * a_row, true);
    else pack_row(a, s->kc, zero, packed + i * a_row, false);
  }
  for (int32_t j = from; j < to; j += NC)
    for (int32_t i = 0; i < mc; i += MR) {
      int32_t t[MR * NC], cols = at_most(to - j, NC), rows = at_most(mc - i, MR);
      tile(s->pairs, packed + i * a_row, a_row, s->packed_b + (int64_t)j * a_row, t);
      for (int32_t r = 0; r < rows; r++) {
        int_m *y = s->y + (int64_t)(i0 + i + r) * p->n + s->j0 + j;
        for (int32_t c = 0; c < cols; c++) y[c] = s->k0 ? (int32_t)((uint32_t)y[c] + (uint32_t)t[r * NC + c]) : t[r * NC + c];
      }
    }
}

/* ---- few rows: b is read once, as it lies; y = (a - a_zero) @ b - b_zero * sum(a - a_zero) ---- */

enum { FEW = 2, CHUNK = 1024 };

/* y += two pairs of a times four rows of b */
EW_INLINE void add_pairs(int32_t n, i16x8 x0, i16x8 x1, const uint8_t *const b[4], int32_t *y, bool is_signed) {
  int32_t j = 0;
  for (; j + 8 <= n; j += 8) {
    i16x8 r0 = shorts_at(b[0] + j, is_signed), r1 = shorts_at(b[1] + j, is_signed), r2 = shorts_at(b[2] + j, is_signed), r3 = shorts_at(b[3] + j, is_signed);
    i32x4 low = *(const i32x4_m *)(y + j), high = *(const i32x4_m *)(y + j + 4);
    low = i32x4_dot_shorts(x0, __builtin_shufflevector(r0, r1, 0, 8, 1, 9, 2, 10, 3, 11), low);
    high = i32x4_dot_shorts(x0, __builtin_shufflevector(r0, r1, 4, 12, 5, 13, 6, 14, 7, 15), high);
    low = i32x4_dot_shorts(x1, __builtin_shufflevector(r2, r3, 0, 8, 1, 9, 2, 10, 3, 11), low);
    high = i32x4_dot_shorts(x1, __builtin_shufflevector(r2, r3, 4, 12, 5, 13, 6, 14, 7, 15), high);
    *(i32x4_m *)(y + j) = low, *(i32x4_m *)(y + j + 4) = high;
  }
  for (; j < n; j++)
    for (int r = 0; r < 4; r++) y[j] = (int32_t)((uint32_t)y[j] + (uint32_t)((r < 2 ? x0 : x1)[r & 1] * byte_at(b[r], j, is_signed)));
}
static __attribute__((noinline)) void add_pairs_signed(int32_t n, i16x8 x0, i16x8 x1, const uint8_t *const b[4], int32_t *y) { add_pairs(n, x0, x1, b, y, true); }
static __attribute__((noinline)) void add_pairs_unsigned(int32_t n, i16x8 x0, i16x8 x1, const uint8_t *const b[4], int32_t *y) { add_pairs(n, x0, x1, b, y, false); }

static void few_rows_task(void *arg, int32_t index, int32_t thread) {
  const integer_block *s = arg;
  const ew_matmul_integer_params *p = s->p;
  (void)thread;
  int32_t begin = index * s->nt, end = begin + at_most(p->n - begin, s->nt);
  for (int32_t j = begin; j < end; j += CHUNK) {
    int32_t y[FEW][CHUNK] = {{0}}, sum[FEW] = {0}, n = at_most(end - j, CHUNK);
    for (int32_t q = 0; q < p->k; q += 4) {
      const uint8_t *b[4];
      for (int32_t r = 0; r < 4; r++) b[r] = s->b + (int64_t)at_most(q + r, p->k - 1) * p->n + j;
      for (int32_t i = 0; i < p->m; i++) {
        int32_t zero = zero_at(s->a_zero, p->a_zeros, i, s->a_signed);
        int16_t x[4];
        for (int32_t r = 0; r < 4; r++) x[r] = (int16_t)(q + r < p->k ? byte_at(s->a, (int64_t)i * p->k + q + r, s->a_signed) - zero : 0), sum[i] += x[r];
        i16x8 x0 = {x[0], x[1], x[0], x[1], x[0], x[1], x[0], x[1]}, x1 = {x[2], x[3], x[2], x[3], x[2], x[3], x[2], x[3]};
        (s->b_signed ? add_pairs_signed : add_pairs_unsigned)(n, x0, x1, b, y[i]);
      }
    }
    for (int32_t i = 0; i < p->m; i++)
      for (int32_t c = 0; c < n; c++) s->y[(int64_t)i * p->n + j + c] = (int32_t)((uint32_t)y[i][c] - (uint32_t)zero_at(s->b_zero, p->b_zeros, j + c, s->b_signed) * (uint32_t)sum[i]);
  }
}

/* Without scratch, or with no k. */
static void multiply_plain(const integer_block *s) {
  const ew_matmul_integer_params *p = s->p;
  for (int32_t i = 0; i < p->m; i++) {
    int_m *y = s->y + (int64_t)i * p->n;
    int32_t za = zero_at(s->a_zero, p->a_zeros, i, s->a_signed);
    for (int32_t j = 0; j < p->n; j++) y[j] = 0;
    for (int32_t q = 0; q < p->k; q++) {
      const uint8_t *b = s->b + (int64_t)q * p->n;
      int32_t x = byte_at(s->a, (int64_t)i * p->k + q, s->a_signed) - za;
      for (int32_t j = 0; j < p->n; j++) y[j] = (int32_t)((uint32_t)y[j] + (uint32_t)(x * (byte_at(b, j, s->b_signed) - zero_at(s->b_zero, p->b_zeros, j, s->b_signed))));
    }
  }
}

int32_t ew_k_matmul_integer(ew_context *ctx, const ew_matmul_integer_params *p, void *const *operand) {
  int32_t threads = ew_parallel_width(ctx);
  real *scratch = operand[EW_MATMUL_INTEGER_SCRATCH];
  integer_block s = {.p = p, .a_zero = operand[EW_MATMUL_INTEGER_A_ZERO], .b_zero = operand[EW_MATMUL_INTEGER_B_ZERO], .packed_b = (short_m *)scratch,
                     .packed_a = scratch ? (short_m *)(scratch + PACKED) : NULL, .a_share = PACKED * 2 / threads, .a_signed = p->a_type == EW_I8, .b_signed = p->b_type == EW_I8};
  for (int32_t item = 0; item < p->batch; item++) {
    s.a = (const uint8_t *)operand[EW_MATMUL_INTEGER_A] + (int64_t)item * p->a_batch, s.b = (const uint8_t *)operand[EW_MATMUL_INTEGER_B] + (int64_t)item * p->b_batch;
    s.y = (int_m *)operand[EW_MATMUL_INTEGER_Y] + (int64_t)item * p->m * p->n;
    if (p->m <= FEW && p->k) {
      int32_t least = (int32_t)((1 << 18) / ((int64_t)p->k * p->m + 1)) + 1, share = blocks_of(p->n, threads);
      s.nt = blocks_of(at_most(share > least ? share : least, p->n), 16) * 16;
      ew_parallel(ctx, blocks_of(p->n, s.nt), few_rows_task, &s);
      continue;
    }
    if (!scratch || !p->k) {
      multiply_plain(&s);
      continue;
    }
    int32_t kc = (blocks_of(p->k, blocks_of(p->k, 512)) + 1) & ~1, nc = PACKED * 2 / kc / NC * NC, mc = (int32_t)(s.a_share / kc / MR * MR);
    if (mc == 0) kc = 2, nc = PACKED * 2 / kc / NC * NC, mc = MR; /* hundreds of threads */
    if (mc > p->m) mc = blocks_of(p->m, MR) * MR;
    s.mc = mc;
    for (int64_t j0 = 0; j0 < p->n; j0 += nc) {
      s.j0 = (int32_t)j0, s.nc = at_most(p->n - s.j0, nc);
      s.nt = blocks_of(blocks_of(s.nc, NC), threads) * NC, s.column_tasks = blocks_of(s.nc, s.nt);
      for (int64_t k0 = 0; k0 < p->k; k0 += kc) {
        s.k0 = (int32_t)k0, s.kc = at_most(p->k - s.k0, kc), s.pairs = blocks_of(s.kc, 2);
        ew_parallel(ctx, s.column_tasks, pack_b_task, &s);
        ew_parallel(ctx, s.column_tasks * blocks_of(p->m, s.mc), block_task, &s);
      }
    }
  }
  return EW_OK;
}
