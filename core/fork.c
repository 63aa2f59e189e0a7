/* After fork(), natively: the child has a copy of the engine's memory, but none of its threads. */
#include "vm.h"

#if !defined(__wasm__)
EW_API(ew_after_fork) int32_t ew_after_fork(ew_engine *e) {
  ew_pool *pool = ew_pool_open(e, ew_pool_width(e->pool));
  if (!pool) return EW_E_MEMORY;
  /* the former one is leaked: its threads are the parent's, so there is nothing to join, and its
   * mutex may be held by one of them */
  e->pool = pool;
  return EW_OK;
}
#endif
