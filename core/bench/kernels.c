/* How fast the heavy kernels are on one thread, as a fraction of what this machine can do in the same run.
 *
 *     gcc -std=gnu11 -O3 -march=x86-64-v3 -ffp-contract=off -fno-math-errno core/bench/kernels.c core/kernels/*.c core/gen/*.c -lm -o bench && ./bench
 *     emcc -std=gnu11 -O3 -msimd128 [-mrelaxed-simd] -ffp-contract=off -fno-math-errno -sALLOW_MEMORY_GROWTH -sSTACK_SIZE=256KB (the same files) -o bench.js && node [--experimental-wasm-relaxed-simd] bench.js
 *
 * The peak is a loop of independent vector multiply-adds in registers. Machines are shared and clocks change, so it is measured
 * again after each call. An argument picks the kernels whose name contains it. */
#include "../kernel.h"
#include "../simd.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void ew_parallel(ew_context *ctx, int32_t count, ew_task task, void *arg) {
  (void)ctx;
  for (int32_t i = 0; i < count; i++) task(arg, i, 0);
}
int32_t ew_parallel_width(const ew_context *ctx) {
  (void)ctx;
  return 1;
}
int32_t ew_choice(int32_t value, int32_t name) { return name >= 0 ? value : 0; }
int32_t ew_uses(int32_t minus_name_and_value) { return minus_name_and_value < 1; }

/* Seconds of processor time: on a busy machine the wall clock mostly tells what others do. */
#ifdef __EMSCRIPTEN__
#include <emscripten.h>
EM_JS(double, now, (void), {
  const used = process.cpuUsage();
  return (used.user + used.system) * 1e-6;
});
#else
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
#endif

/* FLOP/s of vector multiply-adds in registers, over at least `seconds`: 10 chains hide the latency of a separate multiply and add. */
static float sink;
static __attribute__((noinline)) double peak(double seconds) {
  double start = now(), s = 0, count = 0;
  do {
    vf x[10], a = vf_splat(0.999f + sink), b = vf_splat(0.001f), sum = vf_splat(0);
    for (int i = 0; i < 10; i++) x[i] = vf_splat((float)i);
    for (int j = 0; j < 32768; j++)
      for (int i = 0; i < 10; i++) x[i] = vf_fma(a, b, x[i]);
    for (int i = 0; i < 10; i++) sum += x[i];
    sink += vf_sum(sum) * 1e-30f, count += 10.0 * 32768 * VF * 2, s = now() - start;
  } while (s < seconds);
  return count / s;
}

static ew_context context;
static const char *wanted;
typedef int32_t (*kernel)(ew_context *, const void *, void *const *);

static int by_size(const void *a, const void *b) { return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b); }

/* `work`: what one call is worth, in multiply-adds counted twice, or in bytes. Each call is compared with a peak loop of the same
 * length right after it; the best time and the best and median fractions are shown. */
static void measure(const char *name, kernel run, const void *params, void *const *operand, double work, const char *unit) {
  if (wanted && !strstr(name, wanted)) return;
  enum { MOST = 400 };
  double best = 1e9, fraction[MOST], begun = now();
  int n = 0, calls = 0;
  do run(&context, params, operand), calls++; /* the JIT's second tier, and how long a call takes */
  while (now() - begun < 0.1);
  calls = 1 + (int)(calls * 0.01); /* about a millisecond */
  for (begun = now(); n < MOST && (n < 5 || now() - begun < 0.5); n++) {
    double start = now();
    for (int i = 0; i < calls; i++) run(&context, params, operand);
    double s = now() - start;
    if (s < best * calls) best = s / calls;
    fraction[n] = 100 * work * calls / s / peak(s);
  }
  qsort(fraction, (size_t)n, sizeof *fraction, by_size);
  printf("%-44s %9.4f ms %8.2f G%s", name, best * 1e3, work / best * 1e-9, unit);
  if (unit[0] == 'F') printf("  %5.1f %% of peak, median %5.1f %%", fraction[n - 1 - n / 20], fraction[n / 2]);
  printf("\n");
}

static float *floats(int64_t n) {
  float *p = aligned_alloc(64, ((size_t)n * 4 + 63) / 64 * 64);
  uint32_t state = 1;
  for (int64_t i = 0; i < n; i++) state = state * 1664525 + 1013904223, p[i] = (float)(int32_t)state * 0x1p-31f;
  return p;
}
static uint8_t *bytes(int64_t n) {
  uint8_t *p = aligned_alloc(64, ((size_t)n + 63) / 64 * 64);
  uint32_t state = 1;
  for (int64_t i = 0; i < n; i++) state = state * 1664525 + 1013904223, p[i] = (uint8_t)(state >> 24);
  return p;
}
static uint16_t *halves(int64_t n) {
  uint16_t *p = aligned_alloc(64, ((size_t)n * 2 + 63) / 64 * 64);
  for (int64_t i = 0; i < n; i++) p[i] = (uint16_t)(0x2c00 + i % 1024);
  return p;
}

static float *scratch;

static void gemm(int32_t m, int32_t n, int32_t k, bool a_columns, bool b_columns, bool is_half, int32_t batch) {
  char name[64];
  snprintf(name, sizeof name, "gemm %dx%dx%d%s%s%s%s%.0d", m, n, k, a_columns ? " a'" : "", b_columns ? " b'" : "", is_half ? " float16" : "", batch > 1 ? " batch " : "", batch > 1 ? batch : 0);
  if (wanted && !strstr(name, wanted)) return;
  ew_gemm_params p = {.batch0 = batch, .batch1 = 1, .m = m, .n = n, .k = k, .a0 = m * k, .a_row = a_columns ? 1 : k, .a_col = a_columns ? m : 1, .b0 = n * k, .b_row = b_columns ? 1 : n,
                      .b_col = b_columns ? k : 1, .y0 = m * n, .y_row = n, .b_type = is_half ? EW_F16 : EW_F32, .alpha = 1, .beta = 1};
  void *operand[] = {[EW_GEMM_A] = floats((int64_t)m * k * batch), [EW_GEMM_B] = is_half ? (void *)halves((int64_t)n * k * batch) : floats((int64_t)n * k * batch),
                     [EW_GEMM_Y] = floats((int64_t)m * n * batch), [EW_GEMM_SCRATCH] = scratch};
  measure(name, (kernel)ew_k_gemm, &p, operand, 2.0 * m * n * k * batch, "FLOP/s");
  free(operand[EW_GEMM_A]), free(operand[EW_GEMM_B]), free(operand[EW_GEMM_Y]);
}

static void nbits(int32_t m, int32_t n, int32_t k, int32_t bits, int32_t block, int32_t format, int32_t accuracy) {
  char name[64];
  snprintf(name, sizeof name, "nbits %dx%dx%d %s%d/%d accuracy %d", m, n, k, format == 1 ? "fp" : format ? "nf" : "int", bits, block, accuracy);
  if (wanted && !strstr(name, wanted)) return;
  ew_matmul_nbits_params p = {.m = m, .n = n, .k = k, .bits = bits, .block = block, .format = format, .scale_type = EW_F32, .zero_type = EW_U8, .a_row = k, .y_row = n, .accuracy = accuracy};
  void *operand[8] = {[EW_MATMUL_NBITS_A] = floats((int64_t)m * k), [EW_MATMUL_NBITS_B] = bytes((int64_t)n * k * bits / 8), [EW_MATMUL_NBITS_SCALES] = floats((int64_t)n * k / block),
                      [EW_MATMUL_NBITS_Y] = floats((int64_t)m * n), [EW_MATMUL_NBITS_SCRATCH] = scratch};
  measure(name, (kernel)ew_k_matmul_nbits, &p, operand, 2.0 * m * n * k, "FLOP/s");
  for (int i = 0; i < 8; i++)
    if (i != EW_MATMUL_NBITS_SCRATCH) free(operand[i]);
}

static void integer(int32_t m, int32_t n, int32_t k, int32_t a_type, int32_t b_type) {
  char name[64];
  snprintf(name, sizeof name, "integer %dx%dx%d %s %s", m, n, k, a_type == EW_I8 ? "int8" : "uint8", b_type == EW_I8 ? "int8" : "uint8");
  if (wanted && !strstr(name, wanted)) return;
  ew_pack_integer_params w = {.items = 1, .n = n, .taps = 1, .c = k, .type = b_type, .n_stride = 1, .c_stride = n};
  ew_integer_product_params p = {.items = 1, .batch = 1, .n = n, .c = k, .x_size = {1, 1, m}, .y_size = {1, 1, m}, .taps = {1, 1, 1}, .stride = {1, 1, 1}, .dilation = {1, 1, 1}, .a_row = k, .y_row = n,
                                 .a_type = a_type, .b_type = b_type, .y_type = EW_I32, .a_zeros = 1, .b_zeros = 1, .low = -128, .high = 255, .scratch_bytes = 4 * 131072};
  uint8_t zero[2] = {128, 3};
  void *packed = floats(((int64_t)n + 64) * (k + 64) / 4 + 2 * n), *b = bytes((int64_t)n * k);
  void *operand[EW_INTEGER_PRODUCT_SCRATCH + 1] = {[EW_INTEGER_PRODUCT_A] = bytes((int64_t)m * k), [EW_INTEGER_PRODUCT_W] = packed, [EW_INTEGER_PRODUCT_A_ZERO] = zero, [EW_INTEGER_PRODUCT_B_ZERO] = zero + 1,
                                                   [EW_INTEGER_PRODUCT_Y] = floats((int64_t)m * n), [EW_INTEGER_PRODUCT_SCRATCH] = scratch};
  ew_k_pack_integer(&context, &w, (void *[]){[EW_PACK_INTEGER_W] = b, [EW_PACK_INTEGER_Y] = packed});
  measure(name, (kernel)ew_k_integer_product, &p, operand, 2.0 * m * n * k, "FLOP/s");
  free(operand[EW_INTEGER_PRODUCT_A]), free(packed), free(b), free(operand[EW_INTEGER_PRODUCT_Y]);
}

static void attention(int32_t heads, int32_t kv_heads, int32_t q, int32_t kv, int32_t d, bool causal, bool is_half) {
  char name[64];
  snprintf(name, sizeof name, "attention %d/%d heads of %d, %d x %d%s%s", heads, kv_heads, d, q, kv, causal ? " causal" : "", is_half ? " f16" : "");
  if (wanted && !strstr(name, wanted)) return;
  ew_attention_params p = {.batch = 1, .heads = heads, .kv_heads = kv_heads, .q_len = q, .kv_len = kv, .head_dim = d, .v_dim = d, .q_h = q * d, .q_s = d, .k_h = kv * d, .k_s = d, .v_h = kv * d, .v_s = d,
                           .y_h = q * d, .y_s = d, .mask_type = EW_F32, .causal = causal, .past = kv - q, .kv_type = is_half ? EW_F16 : EW_F32, .scale = 0.125f};
  int64_t n = (int64_t)kv_heads * kv * d;
  void *operand[8] = {[EW_ATTENTION_Q] = floats((int64_t)heads * q * d), [EW_ATTENTION_K] = is_half ? (void *)halves(n) : floats(n), [EW_ATTENTION_V] = is_half ? (void *)halves(n) : floats(n),
                      [EW_ATTENTION_Y] = floats((int64_t)heads * q * d)};
  double pairs = causal ? (double)q * (kv - q) + 0.5 * q * (q + 1.0) : (double)q * kv;
  measure(name, (kernel)ew_k_attention, &p, operand, 4.0 * heads * d * pairs, "FLOP/s");
  for (int i = 0; i < 8; i++) free(operand[i]);
}

static void convolution(int32_t c, int32_t m, int32_t side, int32_t taps, int32_t stride, int32_t groups) {
  static const char *const names[] = {"conv", "conv by x", "conv by w"};
  int32_t pad = taps / 2, out = (side + 2 * pad - taps) / stride + 1;
  int64_t nx = (int64_t)c * side * side, ny = (int64_t)m * out * out, nw = (int64_t)m * c / groups * taps * taps;
  float *x = floats(nx), *y = floats(ny), *w = floats(nw);
  for (int way = 0; way < 3; way++) {
    char name[80];
    snprintf(name, sizeof name, "%s %dx%d / %d, %d to %d channels %dx%d groups %d", names[way], taps, taps, stride, c, m, out, out, groups);
    ew_conv_params p = {.batch = 1, .groups = groups, .m = m / groups, .c = c / groups, .x_batch = (int32_t)nx, .x_size = {1, side, side}, .y_size = {1, out, out}, .taps = {1, taps, taps}, .stride = {1, stride, stride}, .dilation = {1, 1, 1}, .pad = {0, pad, pad}};
    ew_conv_weight_grad_params pw = {.batch = 1, .groups = groups, .m = m / groups, .c = c / groups, .x_batch = (int32_t)nx, .x_size = {1, side, side}, .y_size = {1, out, out}, .taps = {1, taps, taps}, .stride = {1, stride, stride}, .dilation = {1, 1, 1}, .pad = {0, pad, pad}};
    ew_conv_transpose_params pt;
    memcpy(&pt, &pw, sizeof pt);
    double work = 2.0 * (double)ny * (c / groups) * taps * taps;
    if (way == 0) measure(name, (kernel)ew_k_conv, &p, (void *[]){[EW_CONV_X] = x, [EW_CONV_W] = w, [EW_CONV_BIAS] = NULL, [EW_CONV_RESIDUAL] = NULL, [EW_CONV_Y] = y, [EW_CONV_SCRATCH] = scratch}, work, "FLOP/s");
    if (way == 1) measure(name, (kernel)ew_k_conv_transpose, &pt, (void *[]){[EW_CONV_TRANSPOSE_Y] = y, [EW_CONV_TRANSPOSE_W] = w, [EW_CONV_TRANSPOSE_BIAS] = NULL, [EW_CONV_TRANSPOSE_X] = x, [EW_CONV_TRANSPOSE_SCRATCH] = scratch}, work, "FLOP/s");
    if (way == 2) measure(name, (kernel)ew_k_conv_weight_grad, &pw, (void *[]){[EW_CONV_WEIGHT_GRAD_X] = x, [EW_CONV_WEIGHT_GRAD_DY] = y, [EW_CONV_WEIGHT_GRAD_DW] = w, [EW_CONV_WEIGHT_GRAD_SCRATCH] = scratch}, work, "FLOP/s");
  }
  free(x), free(y), free(w);
}

static void rows(const char *which, int32_t n, int32_t cols) {
  char name[64];
  snprintf(name, sizeof name, "%s %dx%d", which, n, cols);
  if (wanted && !strstr(name, wanted)) return;
  float *x = floats((int64_t)n * cols), *y = floats((int64_t)n * cols), *scale = floats(cols), *bias = floats(cols);
  double work = 8.0 * n * cols; /* bytes read and written, each once */
  if (which[0] == 's') {
    ew_softmax_params p = {.rows = n, .cols = cols, .x_row = cols, .y_row = cols};
    measure(name, (kernel)ew_k_softmax, &p, (void *[]){x, y}, work, "B/s");
  } else if (which[0] == 'r') {
    ew_rope_params p = {.batch = 1, .heads = cols / 64, .seq = n, .head_dim = 64, .rotary_dim = 64, .x_h = 64, .x_s = cols, .y_h = 64, .y_s = cols, .c_rows = 1, .scale = 1};
    measure(name, (kernel)ew_k_rope, &p, (void *[]){x, scale, bias, NULL, y}, work, "B/s");
  } else {
    ew_norm_params p = {.rms = which[0] == 'R', .rows = n, .cols = cols, .x_row = cols, .y_row = cols, .epsilon = 1e-5f};
    measure(name, (kernel)ew_k_norm, &p, (void *[9]){[EW_NORM_X] = x, [EW_NORM_SCALE] = scale, [EW_NORM_BIAS] = which[0] == 'R' ? NULL : bias, [EW_NORM_Y] = y}, work, "B/s");
  }
  free(x), free(y), free(scale), free(bias);
}

/* What only training needs. Bytes read and written, each once. */
static void training(int32_t n, int32_t cols) {
  char name[64];
  const int64_t size = (int64_t)n * cols;
  float *x = floats(size), *y = floats(size), *z = floats(size), *w = floats(size), *row = floats(cols), *sums = floats(64 * (int64_t)cols), *column = floats(4 * (int64_t)n);
  int64_t *label = calloc((size_t)n, 8), step = 7;
  float rate = 1e-3f;
  for (int32_t i = 0; i < n; i++) label[i] = i * 7919 % cols;
  for (int rms = 0; rms < 2; rms++) {
    ew_norm_grad_params p = {.rms = rms, .rows = n, .cols = cols, .x_row = cols, .dy_row = cols, .parts = 16, .epsilon = 1e-5f};
    snprintf(name, sizeof name, "%s gradient %dx%d", rms ? "RMS norm" : "layer norm", n, cols);
    measure(name, (kernel)ew_k_norm_grad, &p, (void *[]){x, y, row, NULL, z, sums, rms ? NULL : sums + cols, sums + 2 * cols}, 12.0 * (double)size, "B/s");
  }
  ew_softmax_grad_params s = {.rows = n, .cols = cols, .dy_row = cols, .y_row = cols};
  snprintf(name, sizeof name, "softmax gradient %dx%d", n, cols);
  measure(name, (kernel)ew_k_softmax_grad, &s, (void *[]){x, y, z}, 12.0 * (double)size, "B/s");
  ew_cross_entropy_params c = {.rows = n, .classes = cols, .x_row = cols, .label_type = EW_I64};
  snprintf(name, sizeof name, "cross entropy %dx%d", n, cols);
  measure(name, (kernel)ew_k_cross_entropy, &c, (void *[]){x, label, NULL, column, column + n, column + 2 * n}, 4.0 * (double)size, "B/s");
  ew_cross_entropy_grad_params g = {.rows = n, .classes = cols, .x_row = cols, .label_type = EW_I64};
  snprintf(name, sizeof name, "cross entropy gradient %dx%d", n, cols);
  measure(name, (kernel)ew_k_cross_entropy_grad, &g, (void *[]){x, label, NULL, column + 2 * n, column, z}, 8.0 * (double)size, "B/s");
  memset(w, 0, (size_t)size * 4), memset(z, 0, (size_t)size * 4);
  for (int32_t rule = 0; rule < EW_OPTIMIZER_RULE_COUNT; rule++) {
    static const char *const names[] = {"AdamW", "SGD, momentum", "Adagrad", "RMSprop", "Lion"};
    ew_optimizer_params p = {.rule = rule, .n = (int32_t)size, .rest1 = 0.1f, .rest2 = 0.001f, .epsilon = 1e-8f, .momentum = 0.9f};
    snprintf(name, sizeof name, "optimizer %s %d", names[rule], (int)size);
    measure(name, (kernel)ew_k_optimizer, &p, (void *[12]){x, y, z, rule ? NULL : w, NULL, &rate, &step, NULL, x, z, rule ? NULL : w, NULL}, (rule ? 20.0 : 28.0) * (double)size, "B/s");
  }
  ew_optimizer_8bit_params e = {.n = (int32_t)size, .rest1 = 0.1f, .rest2 = 0.001f, .epsilon = 1e-8f};
  snprintf(name, sizeof name, "optimizer AdamW, 8-bit states %d", (int)size);
  measure(name, (kernel)ew_k_optimizer_8bit, &e, (void *[14]){x, y, z, w, z + size / 2, w + size / 2, &rate, &step, NULL, x, z, w, z + size / 2, w + size / 2}, 16.0 * (double)size, "B/s");
  ew_random_params r = {.n = (int32_t)size, .threshold = 1 << 28, .scale = 1};
  snprintf(name, sizeof name, "dropout %d", (int)size);
  measure(name, (kernel)ew_k_random, &r, (void *[]){x, label, y}, 8.0 * (double)size, "B/s");
  free(x), free(y), free(z), free(w), free(row), free(sums), free(column), free(label);
}

int main(int argc, char **argv) {
  wanted = argc > 1 ? argv[1] : NULL;
  scratch = floats(131072 + 65536 + 131072);
  printf("peak: %.1f GFLOP/s\n", (peak(0.2), peak(0.2)) * 1e-9);
  for (int columns = 0; columns < 2; columns++) {
    gemm(512, 512, 512, false, columns, false, 1), gemm(1024, 1024, 1024, false, columns, false, 1);
    gemm(256, 1536, 576, false, columns, false, 1), gemm(256, 576, 1536, false, columns, false, 1), gemm(256, 576, 576, false, columns, columns, 1);
    gemm(1, 2048, 2048, false, columns, false, 1), gemm(1, 2048, 2048, false, columns, true, 1), gemm(4, 2048, 2048, false, columns, false, 1), gemm(12, 1536, 576, false, columns, false, 1);
    gemm(2, 2048, 2048, false, columns, false, 1), gemm(16, 2048, 2048, false, columns, false, 1), gemm(1, 1536, 576, false, columns, false, 1), gemm(1, 49152, 576, false, columns, false, 1);
  }
  gemm(576, 576, 256, true, false, false, 1), gemm(64, 64, 64, false, false, false, 64), gemm(1, 49152, 576, false, true, false, 1);
  for (int accuracy = 0; accuracy <= 4; accuracy += 4) {
    nbits(1, 2048, 2048, 4, 32, 0, accuracy), nbits(1, 1536, 576, 4, 32, 0, accuracy), nbits(1, 2048, 2048, 8, 32, 0, accuracy), nbits(1, 2048, 2048, 2, 32, 0, accuracy);
    nbits(4, 2048, 2048, 4, 32, 0, accuracy), nbits(256, 1536, 576, 4, 32, 0, accuracy);
  }
  nbits(1, 2048, 2048, 4, 64, 2, 0), nbits(256, 1536, 576, 4, 64, 2, 0);
  integer(1, 2048, 2048, EW_U8, EW_I8), integer(8, 2048, 2048, EW_U8, EW_I8), integer(512, 512, 512, EW_U8, EW_I8), integer(256, 1536, 576, EW_U8, EW_U8);
  attention(8, 8, 512, 512, 64, false, false), attention(9, 3, 256, 256, 64, true, false), attention(9, 3, 1, 1024, 64, true, false), attention(9, 3, 1, 1024, 64, true, true);
  attention(12, 12, 1, 1024, 64, true, false), attention(12, 12, 128, 128, 64, false, false);
  convolution(3, 64, 224, 7, 2, 1), convolution(3, 32, 224, 3, 2, 1), convolution(64, 64, 56, 3, 1, 1), convolution(128, 128, 28, 3, 1, 1), convolution(512, 512, 7, 3, 1, 1), convolution(256, 512, 56, 1, 2, 1);
  convolution(32, 32, 112, 3, 1, 32), convolution(96, 96, 112, 3, 2, 96), convolution(384, 384, 14, 3, 1, 384), convolution(960, 960, 7, 3, 1, 960);
  rows("layer norm", 256, 576), rows("RMS norm", 256, 576), rows("softmax", 512, 512), rows("softmax", 1, 49152), rows("rope", 256, 576);
  training(512, 576), training(512, 49152);
  return 0;
}
