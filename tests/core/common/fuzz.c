/* Main program of the fuzzers: options, seeds, time limits, and the report of a finding. */
#if !defined(_POSIX_C_SOURCE)
#  define _POSIX_C_SOURCE 200809L
#endif
#include "fuzz.h"
#include <dirent.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
void __sanitizer_set_death_callback(void (*)(void));
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
  return "allocator_may_return_null=1:max_allocation_size_mb=512:detect_leaks=1:"
         "quarantine_size_mb=16:malloc_context_size=8"; /* several times as many runs per second */
}
/* UBSan's runtime is a separate library and does not call the death callback */
const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void) { return "print_stacktrace=1:abort_on_error=1"; }
#endif

enum { LONGEST = 20 /* seconds per run */ };

fuzz_seed seeds[64], packed[64];
uint32_t n_seeds, n_packed;
static uint64_t seed = 1, run_number, state;
static const char *program;

static void say_where(void) {
  fprintf(stderr, "\n%s: to repeat:  %s --seed %llu --first %llu --runs 1\n", program, program,
          (unsigned long long)seed, (unsigned long long)run_number);
}

void die(const char *why, const char *kernel) {
  fprintf(stderr, "%s: %s (%s)\n", program, why, kernel);
  abort();
}

static void stop(int signal) { /* the run takes too long, or UBSan aborted */
  say_where();
  _exit(signal == SIGALRM ? 4 : 3);
}

/* splitmix64 */
uint64_t next(void) {
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}
uint32_t below(uint32_t n) { return (uint32_t)((next() >> 32) * n >> 32); }

/* The bytes of a file; none if it is missing or larger than `most`. */
static fuzz_seed read_file(const char *path, size_t most) {
  fuzz_seed s = {malloc(most), 0};
  FILE *f = fopen(path, "rb");
  if (f && s.bytes) {
    s.n = fread(s.bytes, 1, most, f);
    if (!feof(f) && fgetc(f) != EOF) s.n = 0;
  }
  if (f) fclose(f);
  return s;
}

static void read_seeds(const char *folder) {
  DIR *d = opendir(folder);
  for (struct dirent *e; d && (e = readdir(d));) {
    const char *dot = strrchr(e->d_name, '.');
    const bool plan = dot && !strcmp(dot, ".plan"), package = dot && !strcmp(dot, ".packed");
    char path[1024];
    if ((!plan && !package) || (plan && n_seeds == sizeof seeds / sizeof *seeds) ||
        (package && n_packed == sizeof packed / sizeof *packed) ||
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name) >= (int)sizeof path)
      continue;
    const fuzz_seed s = read_file(path, plan ? MAX_PLAN : MAX_PACKED);
    if (s.n < sizeof(ew_plan_header)) {
      free(s.bytes);
      continue;
    }
    if (package) {
      packed[n_packed++] = s;
      continue;
    }
    /* a plan for another kernel table is still a useful seed */
    const uint32_t hash = EW_TABLE_HASH;
    memcpy(s.bytes + offsetof(ew_plan_header, table_hash), &hash, 4);
    seeds[n_seeds++] = s;
  }
  if (d) closedir(d);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int fuzz(int argc, char **argv, void (*one)(ew_engine *), bool every_kernel) {
  uint64_t runs = 20000, first = 0;
  double seconds = 1e9;
  const char *folder = ".build/seeds", *slash = strrchr(argv[0], '/');
  bool verbose = false;
  program = slash ? slash + 1 : argv[0];
  for (int i = 1; i < argc; i++) {
    const char *value = i + 1 < argc ? argv[i + 1] : "";
    if (!strcmp(argv[i], "--verbose"))
      verbose = true;
    else if (!strcmp(argv[i], "--runs"))
      runs = strtoull(value, NULL, 10), i++;
    else if (!strcmp(argv[i], "--seed"))
      seed = strtoull(value, NULL, 10), i++;
    else if (!strcmp(argv[i], "--first"))
      first = strtoull(value, NULL, 10), i++;
    else if (!strcmp(argv[i], "--seconds"))
      seconds = strtod(value, NULL), i++;
    else if (!strcmp(argv[i], "--seeds"))
      folder = value, i++;
    else if (*argv[i] >= '0' && *argv[i] <= '9')
      runs = strtoull(argv[i], NULL, 10);
    else {
      fprintf(stderr,
              "usage: %s [[--runs] N] [--seed S] [--first I] [--seconds T] [--seeds FOLDER] "
              "[--verbose]\n",
              program);
      return 2;
    }
  }
  signal(SIGALRM, stop), signal(SIGABRT, stop);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_set_death_callback(say_where);
#endif
  read_names();
  read_seeds(folder);
  ew_engine *engines[2] = {ew_open(1), ew_open(3)};
  const double start = now();
  uint64_t done = 0;
  for (run_number = first; done < runs && now() - start < seconds; run_number++, done++) {
    alarm(LONGEST);
    state = seed * 0x2545f4914f6cdd1du + run_number * 0x9e3779b97f4a7c15u;
    next();
    one(engines[one_in(16)]);
  }
  alarm(0);
  ew_close(engines[0]), ew_close(engines[1]);
  for (uint32_t i = 0; i < n_seeds; i++) free(seeds[i].bytes);
  for (uint32_t i = 0; i < n_packed; i++) free(packed[i].bytes);
  printf("%s: %llu runs in %.0f s from seed %llu and %u files: %llu plans accepted; steps: %llu "
         "ran, %llu ended with an error, %llu were stopped, %llu skipped\n",
         program, (unsigned long long)done, now() - start, (unsigned long long)seed,
         n_seeds + n_packed, (unsigned long long)loaded, (unsigned long long)ran,
         (unsigned long long)failed, (unsigned long long)stopped, (unsigned long long)skipped);
  for (int k = 0; k < EW_KERNEL_COUNT; k++) {
    if (verbose)
      printf("  %-18s composed %8llu  ran %8llu  error %8llu\n", name_of(k),
             (unsigned long long)kernels[k].composed, (unsigned long long)kernels[k].ran,
             (unsigned long long)kernels[k].refused);
    if (done >= 10000 && every_kernel && !kernels[k].ran) {
      fprintf(stderr, "%s: %s never ran\n", program, name_of(k));
      return 1;
    }
  }
  return 0;
}
