/* sbrk and memory growth for malloc. Emscripten would import this from its JavaScript glue; the
 * engine has no glue and grows its memory itself. The host observes growth as a new
 * `memory.buffer`. */
#include <stddef.h>

int emscripten_resize_heap(size_t wanted) {
  const size_t page = 65536;
  size_t pages = wanted / page + (wanted % page != 0), have = __builtin_wasm_memory_size(0);
  return pages <= have || __builtin_wasm_memory_grow(0, pages - have) != (size_t)-1;
}

#if defined(__wasm64__)
/* Called by a thread that waits for malloc, which takes less than a yield would. */
int sched_yield(void) { return 0; }
#endif
