/* Parameters and data to try. */
#include "fuzz.h"
#include "../../../core/gen/names.h"
#include <math.h>

kernel_fields kernels[EW_KERNEL_COUNT];

const char *name_of(int kernel) {
  return kernel >= 0 && kernel < EW_KERNEL_COUNT ? ew_names[kernel].name : "no kernel";
}

access_kind access_of(int kernel, int operand, char *name, size_t room) {
  const char *s = ew_names[kernel].operands;
  for (int i = 0; i < operand; i++) s = strchr(s, ' ') + 1;
  const char *colon = strchr(s, ':');
  const size_t length = strcspn(colon + 1, " ");
  snprintf(name, room, "%s.%.*s", name_of(kernel), (int)length, colon + 1);
  return *s == 'r' ? READ : *s == 'w' ? WRITE : *s == 'u' ? UPDATE : SCRATCH;
}

void read_names(void) {
  static const char *const counts[] = {
      "batch",     "batch0",   "batch1", "heads",   "m",      "n",     "k",        "q_len",
      "kv_len",    "head_dim", "v_dim",  "rows",    "cols",   "outer", "inner",    "count",
      "axis",      "seq",      "depth",  "dims",    "groups", "c",     "channels", "planes",
      "positions", "taps",     "y_size", "classes", "parts"};
  for (int k = 0; k < EW_KERNEL_COUNT; k++) {
    int at = 0;
    for (const char *s = ew_names[k].params; *s;) {
      field *f = &kernels[k].fields[kernels[k].n++];
      *f = (field){.is_float = *s == 'f', .at = at, .length = s[3] == '[' ? s[4] - '0' : 1};
      s = strchr(s, ':') + 1;
      size_t length = strcspn(s, " ");
      memcpy(f->name, s, length < sizeof f->name ? length : sizeof f->name - 1);
      if (!strcmp(f->name, "dims") || !strcmp(f->name, "sizes")) kernels[k].dims = at;
      for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        f->counts |= !strcmp(f->name, counts[c]);
      at += f->length;
      s += length + (s[length] == ' ');
    }
  }
}

static int32_t count(void) {
  return one_in(8) ? (int32_t)below(70) : one_in(40) ? (int32_t)below(600) : 1 + (int32_t)below(8);
}

static void guess_field(const field *f, int32_t *params, int dims) {
  int32_t *p = params + f->at;
  const char *n = f->name;
  if (f->is_float) {
    float v = one_in(10)   ? NAN
              : one_in(10) ? INFINITY
              : one_in(3)  ? 1.0f
                           : (float)((int32_t)below(2000) - 1000) / 256;
    memcpy(p, &v, 4);
  } else if (f->length == 6 && f->at == dims) {
    for (int d = 0; d < 6; d++)
      p[d] = one_in(2) ? 1 : one_in(30) ? (int32_t)below(700) : 1 + (int32_t)below(5);
  } else if (f->length == 6) {
    int32_t span = 1, kind = (int32_t)below(4);
    for (int d = 5; d >= 0; d--) {
      p[d] = kind == 0 && one_in(2)   ? 0
             : kind == 1              ? (int32_t)below(9)
             : kind == 2 && one_in(3) ? -span
                                      : span;
      /* kernels without dims have other parameters at this place */
      span *=
          span > 100000 || params[dims + d] <= 0 || params[dims + d] > 10000 ? 1 : params[dims + d];
    }
  } else if (f->length == 3) { /* a field of a window */
    for (int d = 0; d < 3; d++)
      p[d] = !strcmp(n, "pad") || !strcmp(n, "tail") ? (int32_t)below(5) - 1
             : one_in(2) ? 1
                         : 1 + (int32_t)below(strstr(n, "size") ? 20 : 5);
  } else if (!strcmp(n, "counter"))
    *p = PICK(-1, 0, 1);
  else if (strstr(n, "type"))
    *p = one_in(2) ? EW_F32
         : one_in(3)
             ? PICK(EW_U8, EW_I8)
             : PICK(1, 2, 3, 4, 5, 6, 6, 7, 7, 9, 10, 11, 12, 13, 16, 17, 20, 21, 22, 24, 26, 28);
  else if (!strcmp(n, "size"))
    *p = PICK(1, 2, 4, 4, 8);
  else if (!strcmp(n, "bits"))
    *p = PICK(2, 4, 8, 8, 16, 32);
  else if (!strcmp(n, "block"))
    *p = PICK(-1, 0, 16, 32, 32, 5);
  else if (!strcmp(n, "op") || !strcmp(n, "activation"))
    *p = (int32_t)below(one_in(2) ? 8 : 47);
  else if (!strcmp(n, "axis") || !strcmp(n, "depth"))
    *p = (int32_t)below(one_in(2) ? 3 : 7);
  else if (!strcmp(n, "k") && one_in(3))
    *p = (int32_t)below(21) - 10;
  else if (strstr(n, "dim"))
    *p = 2 * (1 + (int32_t)below(one_in(4) ? 40 : 8));
  else if (strchr(n, '_') && !strstr(n, "len") && !strstr(n, "rows") && !strstr(n, "heads"))
    *p = PICK(0, 1, 1, 2, (int32_t)below(9), (int32_t)below(70), (int32_t)below(700));
  else
    *p = one_in(6) ? PICK(0, 1, 2, 3) : count();
}

void guess(int k, int32_t *params) {
  int32_t *type = NULL, *size = NULL;
  for (int i = 0; i < kernels[k].n; i++) {
    const field *f = &kernels[k].fields[i];
    guess_field(f, params, kernels[k].dims);
    if (!strcmp(f->name, "type")) type = params + f->at;
    if (!strcmp(f->name, "size")) size = params + f->at;
  }
  bool unknown = false;
  /* kernels with both a type and a size expect them to match */
  if (type && size && one_in(2)) *size = (int32_t)ew_check_bytes_of_any(&unknown, *type);
}

/* Upper bound of the number of elementary operations, from the parameters that are counts. */
double work_of(int k, const int32_t *params) {
  double work = 1;
  for (int i = 0; i < kernels[k].n; i++) {
    const field *f = &kernels[k].fields[i];
    for (int d = 0; f->counts && d < f->length; d++)
      work *= params[f->at + d] ? fabs((double)params[f->at + d]) : 1;
  }
  return work;
}

/* ---- parameters that no model has ---- */

static int32_t large(void) {
  switch (below(9)) {
  case 0: return 0;
  case 1: return (int32_t)below(9);
  case 2:
  case 3: return (int32_t)((uint32_t)next() >> 1 >> below(31));
  case 4:
    return PICK(255, 256, 46340, 46341, 65535, 65536, 1 << 20, 1 << 24, 1 << 29, 1 << 30,
                INT32_MAX / 8, INT32_MAX / 4, INT32_MAX - 15, INT32_MAX - 1, INT32_MAX);
  case 5: return -(int32_t)((uint32_t)next() >> 1 >> below(31));
  case 6: return PICK(INT32_MIN, INT32_MIN + 1, -1, -128, -129);
  default: return 1 + (int32_t)below(64);
  }
}

/* Numbers whose product is close to a power of two at which something wraps or a limit lies. */
static void large_together(int32_t *p, int n) {
  int left = PICK(8, 16, 24, 30, 31, 32, 33, 40, 48, 62, 63, 64, 65, 93);
  for (int d = n - 1; d >= 0; d--) {
    int bits = d ? (int)below((uint32_t)(left < 30 ? left : 30) + 1) : left < 30 ? left : 30;
    if (one_in(2) && left / (d + 1) <= 30) bits = left / (d + 1); /* nearly equal factors */
    p[d] = (int32_t)(1u << bits), left -= bits;
    if (one_in(4)) p[d] += (int32_t)below(3) - 1;
  }
  if (one_in(2) && n > 1) {
    const uint32_t i = below((uint32_t)n);
    const int32_t t = p[0];
    p[0] = p[i], p[i] = t;
  }
}

void guess_large(int k, int32_t *params) {
  const uint32_t rate = 1 + below(5); /* change one field in `rate` */
  guess(k, params);
  for (int i = 0; i < kernels[k].n; i++) {
    const field *f = &kernels[k].fields[i];
    int32_t *p = params + f->at;
    if (f->is_float) {
      const uint32_t bits = (uint32_t)next();
      if (one_in(4)) memcpy(p, &bits, 4);
      continue;
    }
    if (strstr(f->name, "type") || !strcmp(f->name, "size") || !strcmp(f->name, "bits") ||
        !strcmp(f->name, "op") || !one_in(rate))
      continue;
    if (f->length > 1 && one_in(2))
      large_together(p, f->length);
    else if (f->length == 6 && f->at != kernels[k].dims && one_in(2))
      memset(p, 0, 24);
    else
      for (int d = 0; d < f->length; d++)
        if (f->length == 1 || one_in(2)) p[d] = large();
  }
}

/* ---- data ---- */

/* Near 2^31, 2^32 or 2^33, or that in elements of 2 to 8 bytes: where numbers of 32 bits end. */
static int64_t border(void) {
  const int64_t at = INT64_C(1) << (31 + below(3));
  const int64_t value = at / (1 << below(4)) + (int64_t)below(129) - 64;
  return one_in(4) ? -value : value;
}

int64_t telling(void) {
  static const int64_t values[] = {0,
                                   1,
                                   -1,
                                   2,
                                   7,
                                   8,
                                   16,
                                   255,
                                   65535,
                                   65536,
                                   INT32_MAX,
                                   INT32_MIN,
                                   (int64_t)INT32_MAX + 1,
                                   UINT32_MAX,
                                   (int64_t)UINT32_MAX + 1,
                                   INT64_MAX,
                                   INT64_MIN,
                                   (int64_t)1 << 40,
                                   INT64_MAX / 8,
                                   INT64_MAX / 4 + 1};
  return one_in(4)   ? border()
         : one_in(2) ? values[below(sizeof values / sizeof *values)]
         : one_in(2) ? (int64_t)below(40) - 8
                     : (int64_t)below(5000);
}

/* indices, types, floats or noise */
void fill_random(uint8_t *p, size_t n) {
  const uint32_t kind = below(5);
  for (size_t i = 0; i + 8 <= n; i += 8) {
    uint64_t v = kind == 0 ? next() : 0;
    if (kind == 1) v = below(4) | (uint64_t)below(4) << 32;
    if (kind == 2) v = below(3);
    if (kind >= 3)
      for (int h = 0; h < 2; h++) {
        float f = (float)((int32_t)below(4096) - 2048) / 512;
        uint32_t u;
        memcpy(&u, &f, 4);
        v |= (uint64_t)u << 32 * h;
      }
    memcpy(p + i, &v, 8);
  }
}

/* A value around a parameter, which often bounds an index. */
static int64_t special(const int32_t *params, int n_params) {
  const int64_t v = n_params ? params[below((uint32_t)n_params)] : 0;
  switch (below(9)) {
  case 0: return v;
  case 1: return v - 1;
  case 2: return -v;
  case 3: return -v - 1;
  case 4: return -1;
  case 5: return telling();
  default: return (int64_t)below(4);
  }
}

void fill_special(uint8_t *p, size_t n, const int32_t *params, int n_params) {
  static const uint32_t floats[] = {0x7fc00000, 0xffc00001, 0x7f800000, 0xff800000, 0x7f7fffff,
                                    0xff7fffff, 1,          0x80000001, 0x80000000, 0x007fffff,
                                    0x00800000, 0x4f000000, 0xcf000000, 0x5f000000, 0x3f800000,
                                    0xbf800000, 0x4b800000};
  const uint32_t kind = below(6), rare = 1 + below(30);
  if (kind == 0) {
    fill_random(p, n);
    return;
  }
  const size_t width = kind == 1 ? 8 : 4;
  for (size_t i = 0; i < n; i += width) {
    int64_t v = 0;
    if (kind <= 2)
      v = one_in(rare) ? special(params, n_params) : (int64_t)below(2);
    else {
      uint32_t bits = 0x3f000000 + below(1 << 24);
      if (kind == 3) {
        const float f = (float)special(params, n_params) + (one_in(2) ? 0.5f : 0);
        memcpy(&bits, &f, 4);
      } else if (kind == 4 || one_in(rare))
        bits = floats[below(sizeof floats / sizeof *floats)];
      v = bits;
    }
    memcpy(p + i, &v, n - i < width ? n - i : width);
  }
}
