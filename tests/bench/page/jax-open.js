// jax-js in a worker, by default with its WebAssembly backend; one thread, or as many as there are
// processors.
export async function openJax(threads, device = "wasm") {
  // without this it starts as many threads as there are processors
  if (threads === 1) delete globalThis.SharedArrayBuffer;
  const jax = await import(new URL("/jax/index.js", location.href).href);
  if (!(await jax.init(device)).includes(device)) throw new Error(`it has no ${device} here`);
  jax.defaultDevice(device);
  return jax;
}
