// TensorFlow.js in a worker with its WebAssembly backend and the given number of threads.
async function script(path) {
  const text = await (await fetch(path)).text();
  // biome-ignore lint/security/noGlobalEval: the file is the library itself
  globalThis.eval(text); // it is built for script tags, which module workers do not have
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
