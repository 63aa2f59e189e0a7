/* Resizes pictures and resamples sound with sizes, boxes and rates of all kinds, in pieces of all
 * lengths, with each buffer in a heap block of exactly its size. For usage see common/fuzz.h. */
#include "common/fuzz.h"
#include "media/media.h"

enum { MAX = 1 << 22 /* bytes of work or of a picture, so that runs are short */ };

static uint32_t any_size(void) {
  switch (below(8)) {
  case 0: return (uint32_t)telling();
  case 1: return 1 + below(5000);
  default: return 1 + below(40);
  }
}

static float edge_of(uint32_t size) {
  switch (below(8)) {
  case 0: return (float)telling();
  case 1: return __builtin_nanf("");
  case 2: return __builtin_inff();
  default: return (float)below(size + 1) + (float)below(1000) / 1000;
  }
}

static void *block(size_t bytes) {
  uint8_t *p = malloc(bytes ? bytes : 1);
  if (!p) abort();
  return p;
}

static void resize_one(void) {
  ew_resize r = {any_size(), any_size(), 1 + below(5), any_size(),
                 any_size(), below(7),   below(2),     {0, 0, 0, 0}};
  if (one_in(50)) r.channels = (uint32_t)telling();
  const bool whole = one_in(2);
  r.box[0] = whole ? 0 : edge_of(r.width), r.box[1] = whole ? 0 : edge_of(r.height);
  r.box[2] = whole ? (float)r.width : edge_of(r.width);
  r.box[3] = whole ? (float)r.height : edge_of(r.height);
  const int32_t bytes = ew_resize_bytes(&r);
  if (bytes < 0) {
    failed++;
    return;
  }
  const uint64_t pixel = r.channels * (r.is_float ? 4u : 1u);
  const uint64_t row = pixel * r.width, result = pixel * r.out_width * r.out_height;
  if (bytes > MAX || row * r.height > MAX || result > MAX) {
    skipped++;
    return;
  }
  void *work = block((size_t)bytes), *out = block((size_t)result);
  if (ew_resize_open(&r, work)) die("a resize whose size is known cannot be opened", "resize");
  int32_t done = 0;
  for (uint32_t at = 0; at < r.height;) {
    const uint32_t n = 1 + below(r.height - at), more = r.height - at + 1 + below(9);
    if (one_in(8) && ew_resize_feed(work, out, more, out) != -EW_E_ARGUMENT)
      die("takes more rows than there are", "resize");
    uint8_t *rows = block((size_t)(row * n));
    fill_special(rows, (size_t)(row * n), (const int32_t *)&r, 8);
    done = ew_resize_feed(work, rows, n, out);
    free(rows);
    if (done < 0 || done > (int32_t)r.out_height) die("a number of rows", "resize");
    at += n;
  }
  if (done != (int32_t)r.out_height) die("rows are missing", "resize");
  if (ew_resize_feed(work, out, 1, out) != -EW_E_ARGUMENT) die("takes more rows", "resize");
  free(work), free(out);
  ran++;
}

static void resample_one(void) {
  static const uint32_t usual[] = {8000, 11025, 16000, 22050, 24000, 44100, 48000, 96000};
  const uint32_t rate = one_in(4) ? any_size() : usual[below(8)];
  const uint32_t to = one_in(4) ? any_size() : usual[below(8)];
  const int32_t bytes = ew_resample_bytes(rate, to);
  if (bytes < 0) {
    failed++;
    return;
  }
  void *work = block((size_t)bytes);
  if (ew_resample_open(work, rate, to)) die("rates that were allowed are refused", "resample");
  uint64_t total = 0, given = 0;
  for (uint32_t pieces = below(5), last = 0; !last; pieces--) {
    last = !pieces;
    const uint32_t n = last ? 0 : below(one_in(8) ? 9000 : 600);
    const int32_t most = ew_resample_most(work, n);
    if (most < 0 || most > MAX) {
      skipped++;
      free(work);
      return;
    }
    float *in = block(4 * (size_t)n), *out = block(4 * (size_t)most);
    fill_special((uint8_t *)in, 4 * (size_t)n, (const int32_t *)&n, 1);
    const uint32_t room = last || !one_in(6) ? (uint32_t)most : below((uint32_t)most + 1);
    float *few = block(4 * (size_t)room);
    int32_t done = ew_resample_feed(work, last ? NULL : in, n, few, room);
    free(few);
    if (done == -EW_E_ARGUMENT && room < (uint32_t)most) /* it changes nothing */
      done = ew_resample_feed(work, in, n, out, (uint32_t)most);
    if (done < 0) die("a piece is refused", "resample");
    total += (uint32_t)done, given += n;
    free(in), free(out);
  }
  if (total != (given * to + rate - 1) / rate) die("a wrong number of samples", "resample");
  if (ew_resample_feed(work, NULL, 0, NULL, 0) != -EW_E_ARGUMENT) die("ends twice", "resample");
  free(work);
  ran++;
}

static void run(ew_engine *engine) {
  (void)engine;
  if (one_in(6))
    resample_one();
  else
    resize_one();
}

int main(int argc, char **argv) { return fuzz(argc, argv, run, false); }
