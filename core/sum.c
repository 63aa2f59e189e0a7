/* XXH64 with seed 0 (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md), the checksum
 * that hosts use to detect damaged weights. It runs at memory speed; a cryptographic digest would
 * take longer than reading the file. */
#include "vm.h"
#include <string.h>

static const uint64_t P1 = 0x9E3779B185EBCA87, P2 = 0xC2B2AE3D27D4EB4F, P3 = 0x165667B19E3779F9,
                      P4 = 0x85EBCA77C2B2AE63, P5 = 0x27D4EB2F165667C5;

static inline uint64_t rotate(uint64_t x, int by) { return x << by | x >> (64 - by); }

static inline uint64_t word(const unsigned char *p) {
  uint64_t x;
  memcpy(&x, p, sizeof x);
  return x;
}

static inline uint64_t half_word(const unsigned char *p) {
  uint32_t x;
  memcpy(&x, p, sizeof x);
  return x;
}

static inline uint64_t rounded(uint64_t lane, uint64_t x) { return rotate(lane + x * P2, 31) * P1; }

EW_API(ew_xxh64) void ew_xxh64(const void *data, size_t bytes, uint64_t *out) {
  const unsigned char *p = data;
  size_t left = bytes;
  uint64_t h = P5;
  if (left >= 32) {
    uint64_t a = P1 + P2, b = P2, c = 0, d = 0 - P1;
    for (; left >= 32; left -= 32, p += 32)
      a = rounded(a, word(p)), b = rounded(b, word(p + 8)), c = rounded(c, word(p + 16)),
      d = rounded(d, word(p + 24));
    h = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18);
    const uint64_t lanes[] = {a, b, c, d};
    for (int i = 0; i < 4; i++) h = (h ^ rounded(0, lanes[i])) * P1 + P4;
  }
  h += bytes;
  for (; left >= 8; left -= 8, p += 8) h = rotate(h ^ rounded(0, word(p)), 27) * P1 + P4;
  if (left >= 4) h = rotate(h ^ half_word(p) * P1, 23) * P2 + P3, left -= 4, p += 4;
  for (; left; left--, p++) h = rotate(h ^ *p * P5, 11) * P1;
  h = (h ^ h >> 33) * P2;
  h = (h ^ h >> 29) * P3;
  *out = h ^ h >> 32;
}
