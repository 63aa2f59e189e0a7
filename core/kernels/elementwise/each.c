/* Driver of the elementwise kernels: splits strided operands into contiguous rows, and the rows
 * among threads.
 *
 * Adjacent dimensions that are contiguous in all operands are merged. A block is then either a
 * piece of one row (long rows) or as many whole rows as fit (short rows); a task is a range of
 * blocks. An operand that is contiguous over a block is used in place; any other one is gathered
 * into a buffer first (the output: scattered afterwards). An operand that is the same for all
 * blocks is gathered once. */
#include "kernels/elementwise/each.h"
#include <string.h>

enum {
  BLOCK = 4096,   /* bytes per block that is gathered, of the operand with the largest elements */
  LONG_ROW = 256, /* elements from which a row is long */
  LONG_PIECE = 16384, /* elements per piece of a long row that is used in place */
  MAX_IN = 3,         /* inputs */
  OUT = MAX_IN,       /* index of the output among the operands */
  ALL = MAX_IN + 1    /* operands */
};

typedef struct {
  ew_context *context;
  int nd, n_in;
  int64_t dims[6], strides[ALL][6];
  const uint8_t *data[ALL];
  int32_t size[ALL];
  bool used[ALL];
  bool flat[ALL];     /* contiguous over all dimensions */
  bool constant[ALL]; /* independent of the outer dimensions */
  int64_t rows, row, blocks, per_task;
  int32_t piece, pieces; /* long rows: elements per piece, pieces per row */
  int32_t block_rows;    /* short rows: rows per block; 0: long rows */
  ew_row op;
  ew_row_of_numbers numbers; /* NULL: inputs with stride 0 are copied as well */
  uint32_t single;           /* bit k: input k has stride 0 and goes to `numbers` as it is */
  const void *job;
} each;

static void merge(each *e, const int32_t *dims) {
  EW_PLAIN_FOR (int d = 0; d < 6; d++) {
    if (dims[d] == 1) continue;
    int last = e->nd - 1;
    bool joins = e->nd > 0;
    EW_PLAIN_FOR (int k = 0; k < ALL; k++)
      if (e->used[k] && joins && e->strides[k][last] != e->strides[k][d] * dims[d]) joins = false;
    int to = joins ? last : e->nd++;
    e->dims[to] = joins ? e->dims[last] * dims[d] : dims[d];
    EW_PLAIN_FOR (int k = 0; k < ALL; k++) e->strides[k][to] = e->strides[k][d];
  }
  if (!e->nd) e->nd = 1, e->dims[0] = 1;
}

/* Copies n elements; both sides are strided. */
static __attribute__((noinline)) void move(uint8_t *to, int64_t to_stride, const uint8_t *from,
                                           int64_t from_stride, int32_t n, int32_t size) {
  if (to_stride == 1 && from_stride == 1) {
    memcpy(to, from, (size_t)n * (size_t)size);
    return;
  }
  const intptr_t a = (intptr_t)to_stride, b = (intptr_t)from_stride;
#define MOVE(T)                                                                         \
  EW_PLAIN_FOR (int32_t i = 0; i < n; i++) ((T *)to)[i * a] = ((const T *)from)[i * b]; \
  break
  switch (size) {
  case 1: MOVE(m_u8);
  case 2: MOVE(m_u16);
  case 4: MOVE(m_u32);
  default: MOVE(m_u64);
  }
#undef MOVE
}

/* Copies n strided elements into a block, which has room for 7 more bytes: a constant (stride 0) is
 * written 8 bytes at a time. */
static void gather(uint8_t *to, const uint8_t *from, int32_t n, int64_t stride, int32_t size) {
  if (stride) {
    move(to, 1, from, stride, n, size);
    return;
  }
  m_u64 *y = (m_u64 *)to;
  const uint64_t v = size == 1   ? *from * 0x0101010101010101u
                     : size == 2 ? *(const m_u16 *)from * 0x0001000100010001u
                     : size == 4 ? *(const m_u32 *)from * 0x100000001u
                                 : *(const m_u64 *)from;
  EW_EACH for (int32_t i = 0; i < (n * size + 7) / 8; i++) y[i] = v;
}

/* Address of row `row` of operand k. */
static __attribute__((noinline)) const uint8_t *row_start(const each *e, int k, int64_t row) {
  int64_t at = 0;
  for (int d = e->nd - 2; d > 0 && row; d--) /* divisions are slow: not for the outermost one */
    at += row % e->dims[d] * e->strides[k][d], row /= e->dims[d];
  if (e->nd > 1) at += row * e->strides[k][0];
  return e->data[k] + at * e->size[k];
}

static void each_task(void *arg, int32_t index, int32_t thread) {
  (void)thread;
  const each *e = arg;
  _Alignas(16) uint8_t temp[ALL][BLOCK + 8];
  /* number of elements of temp[k] already gathered, for operands that are the same for all blocks
   */
  int32_t filled[ALL] = {0};
  int64_t first = index * e->per_task,
          end = first + e->per_task < e->blocks ? first + e->per_task : e->blocks;
  int inner = e->nd - 1;
  for (int64_t b = first; b < end && !ew_stopping(e->context); b++) {
    int64_t row = b, column = 0;
    if (e->block_rows)
      row = b * e->block_rows;
    else if (e->pieces > 1)
      row = b / e->pieces, column = b % e->pieces * e->piece;
    int32_t rows = e->block_rows
                       ? (int32_t)(e->rows - row < e->block_rows ? e->rows - row : e->block_rows)
                       : 1;
    int32_t n = (int32_t)(e->block_rows                ? e->row
                          : e->row - column < e->piece ? e->row - column
                                                       : e->piece),
            total = rows * n;
    const void *in[MAX_IN] = {0};
    for (int k = 0; k < e->n_in; k++) {
      int64_t stride = e->strides[k][inner];
      in[k] = temp[k];
      if (e->block_rows && e->flat[k])
        in[k] = e->data[k] + row * n * e->size[k];
      else if (e->single >> k & 1)
        in[k] = row_start(e, k, row);
      else if (e->constant[k] && (e->block_rows || stride == 0)) {
        if (filled[k] < total) {
          for (int32_t r = 0; r < rows; r++)
            gather(temp[k] + (int64_t)r * n * e->size[k], e->data[k], n, stride, e->size[k]);
          filled[k] = total;
        }
      } else if (!e->block_rows) {
        const uint8_t *from = row_start(e, k, row) + column * stride * e->size[k];
        if (stride == 1)
          in[k] = from;
        else
          gather(temp[k], from, n, stride, e->size[k]);
      } else
        for (int32_t r = 0; r < rows; r++)
          gather(temp[k] + (int64_t)r * n * e->size[k], row_start(e, k, row + r), n, stride,
                 e->size[k]);
    }
    int64_t stride = e->strides[OUT][inner];
    if (e->block_rows && e->flat[OUT])
      e->op(e->job, total, in, (uint8_t *)e->data[OUT] + row * n * e->size[OUT]);
    else if (e->single)
      e->numbers(e->job, n, in, (uint8_t *)row_start(e, OUT, row) + column * e->size[OUT],
                 e->single);
    else if (!e->block_rows && stride == 1)
      e->op(e->job, n, in, (uint8_t *)row_start(e, OUT, row) + column * e->size[OUT]);
    else {
      e->op(e->job, total, in, temp[OUT]);
      for (int32_t r = 0; r < rows; r++)
        move((uint8_t *)row_start(e, OUT, row + r) + column * stride * e->size[OUT], stride,
             temp[OUT] + (int64_t)r * n * e->size[OUT], 1, n, e->size[OUT]);
    }
  }
}

void ew_whole_vectors(ew_row row, const void *job, int32_t n, int n_in, const void *const *in,
                      void *out) {
  const int32_t whole = n / VF * VF;
  row(job, whole, in, out);
  if (whole == n) return;
  float rest[MAX_IN + 1][VF] = {{0}};
  const void *from[MAX_IN];
  const size_t bytes = (size_t)(n - whole) * 4;
  EW_PLAIN_FOR (int k = 0; k < n_in; k++)
    memcpy(rest[k], (const m_f32 *)in[k] + whole, bytes), from[k] = rest[k];
  row(job, VF, from, rest[MAX_IN]);
  memcpy((m_f32 *)out + whole, rest[MAX_IN], bytes);
}

void ew_each_with_numbers(ew_context *c, const int32_t *dims, int n_in, const ew_strided *in,
                          ew_strided out, ew_row op, ew_row_of_numbers numbers, const void *job) {
  each e = {.context = c, .n_in = n_in, .op = op, .numbers = numbers, .job = job};
  EW_PLAIN_FOR (int k = 0; k < ALL; k++) {
    if (k >= n_in && k != OUT) continue;
    const ew_strided *s = k == OUT ? &out : &in[k];
    e.used[k] = true, e.data[k] = s->data, e.size[k] = s->size;
    EW_PLAIN_FOR (int d = 0; d < 6; d++) e.strides[k][d] = s->strides[d];
  }
  merge(&e, dims);
  int inner = e.nd - 1;
  e.row = e.dims[inner], e.rows = 1;
  EW_PLAIN_FOR (int d = 0; d < inner; d++) e.rows *= e.dims[d];
  bool direct = true;  /* all operands have stride 1 along a row */
  bool repeats = true; /* all operands are contiguous, or the same for all rows */
  int32_t largest = 1;
  EW_PLAIN_FOR (int k = 0; k < ALL; k++) {
    if (!e.used[k]) continue;
    int64_t span = 1;
    e.flat[k] = e.constant[k] = true;
    EW_PLAIN_FOR (int d = inner; d >= 0; d--) {
      if (e.strides[k][d] != span && e.dims[d] != 1) e.flat[k] = false;
      if (e.strides[k][d] && d < inner) e.constant[k] = false;
      span *= e.dims[d];
    }
    if (!e.flat[k] && (k == OUT || !e.constant[k])) repeats = false;
    if (largest < e.size[k]) largest = e.size[k];
    if (k != OUT && numbers && !e.strides[k][inner])
      e.single |= 1u << k;
    else if (e.strides[k][inner] != 1)
      direct = false;
  }
  const int32_t block = BLOCK / largest;
  const bool is_short = e.rows > 1 && e.row < (repeats ? block / 2 : LONG_ROW);
  if (is_short || !direct) e.single = 0;
  if (is_short) {
    e.block_rows = (int32_t)(block / e.row);
    e.blocks = (e.rows + e.block_rows - 1) / e.block_rows;
  } else {
    e.piece = (int32_t)(e.row < (direct ? LONG_PIECE : block) ? e.row
                        : direct                              ? LONG_PIECE
                                                              : block);
    e.pieces = (int32_t)((e.row + e.piece - 1) / e.piece);
    e.blocks = e.rows * e.pieces;
  }
  int32_t tasks = ew_tasks(c, e.rows * e.row, 16384, e.blocks);
  e.per_task = (e.blocks + tasks - 1) / tasks;
  ew_parallel(c, (int32_t)((e.blocks + e.per_task - 1) / e.per_task), each_task, &e);
}

void ew_each(ew_context *c, const int32_t *dims, int n_in, const ew_strided *in, ew_strided out,
             ew_row op, const void *job) {
  ew_each_with_numbers(c, dims, n_in, in, out, op, NULL, job);
}
