/* Support for fork() in native builds: the child inherits a copy of the engine's memory but none of
 * its threads. */
#include "vm.h"

#if !defined(__wasm__)
EW_API(ew_after_fork) int32_t ew_after_fork(ew_engine *e) {
  ew_pool *pool = ew_pool_open(e, ew_pool_width(e->pool));
  if (!pool) return EW_E_MEMORY;
  /* The inherited pool is leaked on purpose: its threads belong to the parent, so there is nothing
   * to join, and one of them may hold its mutex. */
  e->pool = pool;
  return EW_OK;
}
#endif
