// node_host.mjs ENGINE.wasm THREADS   Runs the engine for node_engine.py, which asks over stdin and
// is answered over stdout.
//
// A question: 4 letters, three int64, then bytes. An answer: int32 0, int64 value; or int32 1,
// int64 length, the error's words.
//     call  length of the name, number of arguments, -   name, int64 arguments           value:
//     what the function returned writ  address, bytes, -                            the bytes read
//     address, bytes, -                                                            the bytes follow
//     the answer copy  source, target, bytes size
//     value: bytes of memory
import { readFileSync, readSync, writeSync } from "node:fs";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";

const STACK = 256 * 1024;
const PAGES = 32;
const WIDE = { ew_plan_register: 2 }; // which argument is an int64: it crosses as a BigInt

const nobody = new Int32Array(new SharedArrayBuffer(4));

if (isMainThread) await main();
else serve();

/** A thread of the engine. */
function serve() {
  const { module, memory, handle, index, stackTop, tls } = workerData;
  const engine = new WebAssembly.Instance(module, { env: { memory } }).exports;
  engine.__stack_pointer.value = stackTop;
  engine.__wasm_init_tls(tls);
  parentPort.postMessage("ready");
  engine.ew_worker(handle, index);
}

async function main() {
  const [path, threads] = [process.argv[2], +process.argv[3]];
  const bytes = readFileSync(path);
  const module = new WebAssembly.Module(bytes);
  const limits = bytes.indexOf("\x06memory\x02", 0, "latin1") + 8; // of the imported memory
  const shared = (bytes[limits] & 2) !== 0;
  const memory = new WebAssembly.Memory({ initial: PAGES, maximum: 65536, shared });
  const engine = new WebAssembly.Instance(module, { env: { memory } }).exports;
  engine.__wasm_call_ctors();
  const head = Buffer.alloc(28);
  const answer = Buffer.alloc(12);

  while (read(head)) {
    const kind = head.toString("latin1", 0, 4);
    const [a, b, c] = [4, 12, 20].map((at) => Number(head.readBigInt64LE(at)));
    const data = Buffer.alloc(kind === "call" ? a + 8 * b : kind === "writ" ? b : 0);
    read(data);
    try {
      let value = 0;
      let bytes;
      if (kind === "call") {
        const name = data.toString("latin1", 0, a);
        const args = Array.from({ length: b }, (_, i) => data.readBigInt64LE(a + 8 * i)).map(
          (x, i) => (WIDE[name] === i ? x : Number(x)),
        );
        if (!engine[name]) throw new Error(`it has no function ${name}`);
        value = (engine[name](...args) ?? 0) >>> 0;
        if (name === "ew_open" && value && threads > 1) await startThreads(value);
      } else if (kind === "writ") new Uint8Array(memory.buffer, a, b).set(data);
      // a copy: Node does not write from shared memory
      else if (kind === "read") bytes = Buffer.from(new Uint8Array(memory.buffer, a, b));
      else if (kind === "copy") new Uint8Array(memory.buffer).copyWithin(b, a, a + c);
      else if (kind === "size") value = memory.buffer.byteLength;
      reply(0, value);
      if (bytes) write(bytes);
    } catch (e) {
      const words = Buffer.from(e.message);
      reply(1, words.length);
      write(words);
    }
  }
  process.exit(0); // ends the threads too

  async function startThreads(handle) {
    for (let index = 1; index < threads; index++) {
      const stackTop = ((engine.malloc(STACK) >>> 0) + STACK) & ~15;
      const align = engine.__tls_align.value;
      const tls = Math.ceil((engine.malloc(engine.__tls_size.value + align) >>> 0) / align) * align;
      const worker = new Worker(new URL(import.meta.url), {
        workerData: { module, memory, handle, index, stackTop, tls },
      });
      await new Promise((resolve, reject) => {
        worker.once("message", resolve);
        worker.once("error", reject);
      });
      worker.unref();
    }
  }

  function reply(failed, value) {
    answer.writeInt32LE(failed, 0);
    answer.writeBigInt64LE(BigInt(value), 4);
    write(answer);
  }
}

/** Fills the buffer from stdin; false at its end. */
function read(buffer) {
  for (let at = 0; at < buffer.length; ) {
    const n = patiently(() => readSync(0, buffer, at, buffer.length - at, null));
    if (!n) return false;
    at += n;
  }
  return true;
}

function write(buffer) {
  for (let at = 0; at < buffer.length; )
    at += patiently(() => writeSync(1, buffer, at, buffer.length - at));
}

/** Starting a Worker makes Node's own pipes non-blocking. */
function patiently(f) {
  for (;;) {
    try {
      return f();
    } catch (e) {
      if (e.code !== "EAGAIN") throw e;
      Atomics.wait(nobody, 0, 0, 0.05);
    }
  }
}
