// TensorFlow.js in a worker, with its WebAssembly backend and so many threads.
async function script(path) {
  const text = await (await fetch(path)).text();
  // biome-ignore lint/security/noGlobalEval: the file is the library's own
  globalThis.eval(text); // it is made for script tags, which a module worker has not
}

export async function openTensorFlow(threads) {
  await script("/tf/tfjs/dist/tf.min.js");
  await script("/tf/tfjs-backend-wasm/dist/tf-backend-wasm.min.js");
  const { tf } = globalThis;
  tf.wasm.setWasmPaths(new URL("/tf/tfjs-backend-wasm/dist/", location.href).href);
  tf.wasm.setThreadsCount(threads);
  if (!(await tf.setBackend("wasm"))) throw new Error("its wasm backend does not start");
  await tf.ready();
  return tf;
}
