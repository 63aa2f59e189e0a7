// jax-js in a worker with its WebAssembly backend; one thread, or as many as there are processors.
export async function openJax(threads) {
  // without this it starts as many threads as there are processors
  if (threads === 1) delete globalThis.SharedArrayBuffer;
  const jax = await import(new URL("/jax/index.js", location.href).href);
  await jax.init("wasm");
  jax.defaultDevice("wasm");
  return jax;
}
