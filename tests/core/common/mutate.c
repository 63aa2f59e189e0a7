/* Mutations of a plan's bytes. */
#include "fuzz.h"

size_t mutate(uint8_t *plan, size_t n) {
  if (n < 8) return n;
  ew_plan_header h = {0};
  memcpy(&h, plan, n < sizeof h ? n : sizeof h);
  size_t at = below((uint32_t)n);
  if (one_in(8)) at = below(sizeof h);
  /* the steps, where plans differ most */
  else if (h.steps_at < n && !one_in(4))
    at = (size_t)h.steps_at + below((uint32_t)(n - h.steps_at));
  switch (below(12)) {
  case 0: plan[at] ^= (uint8_t)(1u << below(8)); break;
  case 1: plan[at] = (uint8_t)next(); break;
  case 2:
  case 3: { /* a 32-bit field */
    at = at / 4 * 4;
    if (at + 4 > n) break;
    uint32_t v;
    memcpy(&v, plan + at, 4);
    v = one_in(3) ? v + (uint32_t)below(33) - 16 : (uint32_t)telling();
    memcpy(plan + at, &v, 4);
    break;
  }
  case 4:
  case 5: { /* a 64-bit field */
    at = at / 8 * 8;
    if (at + 8 > n) break;
    uint64_t v;
    memcpy(&v, plan + at, 8);
    v = one_in(2) ? v + (uint64_t)below(65) - 32 : (uint64_t)telling();
    memcpy(plan + at, &v, 8);
    break;
  }
  case 6: { /* copy a field from elsewhere */
    const size_t from = below((uint32_t)n) / 4 * 4, size = one_in(2) ? 4 : 24;
    at = at / 4 * 4;
    if (at + size <= n && from + size <= n) memmove(plan + at, plan + from, size);
    break;
  }
  case 7: return one_in(4) ? at : n; /* truncate */
  case 8:
  case 9: { /* adjacent fields together: all of a size, an entry or an operand */
    const uint32_t count = 2 + below(5);
    int left = PICK(31, 32, 33, 62, 63, 64, 65);
    at = at / 4 * 4;
    for (uint32_t i = count; i-- > 0 && at + 4 * i + 4 <= n;) {
      const int bits = i ? left / (int)(i + 1) : left < 31 ? left : 31;
      const uint32_t v = one_in(8) ? (uint32_t)telling() : 1u << (bits < 31 ? bits : 31);
      memcpy(plan + at + 4 * i, &v, 4), left -= bits;
    }
    break;
  }
  case 10: { /* sizes of the buffers, so that offsets and strides near their ends are accepted */
    if (!h.n_slots || h.slots_at >= n) break;
    const size_t slot = (size_t)h.slots_at + below(h.n_slots) * sizeof(ew_slot_entry);
    const uint64_t v = UINT64_C(1) << (31 + below(4)), more = v + below(129) - 64;
    if (slot + 8 <= n) memcpy(plan + slot, &more, 8);
    break;
  }
  default: { /* swap two fields */
    const size_t from = below((uint32_t)n) / 4 * 4;
    at = at / 4 * 4;
    if (at + 4 > n || from + 4 > n) break;
    uint32_t a, b;
    memcpy(&a, plan + at, 4), memcpy(&b, plan + from, 4);
    memcpy(plan + at, &b, 4), memcpy(plan + from, &a, 4);
  }
  }
  return n;
}
