/* The one thing that malloc needs from outside: more memory. Emscripten would import it from its
 * JavaScript glue;
 *    we run without glue, so the engine grows its memory itself. The host sees it as a new
 *    `memory.buffer`. */
#include <stddef.h>

int emscripten_resize_heap(size_t wanted) {
  const size_t page = 65536;
  size_t pages = wanted / page + (wanted % page != 0), have = __builtin_wasm_memory_size(0);
  return pages <= have || __builtin_wasm_memory_grow(0, pages - have) != (size_t)-1;
}
