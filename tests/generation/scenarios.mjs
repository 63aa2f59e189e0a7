// scenarios.mjs GENERATION.js ENGINE.wasm < [{ids, config}]   The same fake decoder as
// test_javascript.py, run by the TypeScript loop on the wasm engine. Writes a list of results as
// JSON.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [bundle, wasm] = process.argv.slice(2);
const { generate, DecodingStreamer } = await import(pathToFileURL(bundle));
const memory = new WebAssembly.Memory({ initial: 32, maximum: 65536 });
const { exports } = new WebAssembly.Instance(new WebAssembly.Module(readFileSync(wasm)), {
  env: { memory },
});
exports.__wasm_call_ctors();

const live = new Set();
const engine = {
  alloc: (n) => {
    const at = exports.ew_alloc(n) >>> 0;
    live.add(at);
    return at;
  },
  free: (at) => {
    live.delete(at);
    exports.ew_free(at);
  },
  write: (at, bytes) => new Uint8Array(memory.buffer).set(bytes, at),
  floats: (at, n) => new Float32Array(memory.buffer, at, n),
  read: (at, n) => new Uint8Array(memory.buffer).slice(at, at + n),
  call: (name, ...args) => exports[name](...args),
};

class Decoder {
  vocab_size = 300;
  max_length = 64;
  engine = engine;
  sequences = new Map();
  next = 1;
  logits = exports.ew_alloc(1200) >>> 0;
  verified = 8;
  rows = exports.ew_alloc(1200 * 8) >>> 0;
  pace = {
    ...{ allows: () => true, ran() {}, verified() {}, gave() {} },
    drafts: { guessing: 0, allows: () => true, began() {}, read() {}, over() {} },
  };
  wrong = 0; // it guesses one of so many tokens wrongly
  verify(s, ids) {
    ids.forEach((id, i) => {
      engine.write(this.rows + 1200 * i, engine.read(this.forward(s, [id]), 1200));
    });
    return this.rows;
  }
  open() {
    this.sequences.set(this.next, []);
    return this.next++;
  }
  close(s) {
    this.sequences.delete(s);
  }
  copy(a, b) {
    this.sequences.set(b, [...this.sequences.get(a)]);
  }
  truncate(s, n) {
    this.sequences.get(s).length = n;
  }
  forward(s, ids) {
    const all = this.sequences.get(s);
    all.push(...ids);
    let h = 17;
    for (const id of all.slice(-3)) h = (Math.imul(h, 31) + id) >>> 0;
    if (this.wrong && all.length % this.wrong === 0) h = (h + 1) >>> 0;
    const values = Float32Array.from(
      { length: 300 },
      (_, i) => ((Math.imul(h + i, 2654435761) >>> 9) % 4096) / 256 - 8,
    );
    engine.write(this.logits, new Uint8Array(values.buffer));
    return this.logits;
  }
}

const tokenizer = {
  decode: (ids) => ids.map((i) => String.fromCharCode(97 + (i % 26)) + (i % 3 ? "" : " ")).join(""),
};
const results = [];
for (const case_ of JSON.parse(readFileSync(0, "utf8"))) {
  const { ids, config, object, prefill_chunk, generation_config, processor, assistant } = case_;
  const small = assistant && Object.assign(new Decoder(), { wrong: assistant });
  const decoder = Object.assign(new Decoder(), { prefill_chunk, generation_config });
  const result = { warnings: 0, text: "" };
  const plain =
    config.num_beams === undefined &&
    config.num_return_sequences === undefined &&
    !Array.isArray(ids[0]);
  try {
    Object.assign(
      result,
      await generate(decoder, ids, object ?? {}, {
        fields: { return_dict_in_generate: true, ...config },
        tokenizer,
        assistant_model: small,
        warn: () => result.warnings++,
        streamer: plain
          ? new DecodingStreamer(tokenizer, {
              callback_function: (text) => (result.text += `${text}|`),
            })
          : undefined,
        logits_processor: processor
          ? (_, scores) => {
              scores[processor] += 5;
            }
          : undefined,
      }),
    );
  } catch (e) {
    result.error = e.name;
  }
  result.scores = result.scores?.map((step) =>
    step.map((one) => one && Array.from(one, (x) => (x === -Infinity ? null : x))),
  );
  result.leaked = live.size + decoder.sequences.size + (small?.sequences.size ?? 0);
  results.push(result);
}

// Abort, heard between tokens although nothing here waits.
const controller = new AbortController();
const decoder = new Decoder();
let tokens = 0;
const slow = Object.assign(Object.create(decoder), {
  forward: (s, ids) => {
    const until = performance.now() + 10;
    while (performance.now() < until);
    return decoder.forward(s, ids);
  },
});
setTimeout(() => controller.abort(), 50);
const aborted = await generate(
  slow,
  [1, 2],
  { max_new_tokens: 60 },
  { signal: controller.signal, streamer: { put: () => tokens++, end: () => {} } },
).catch((e) => e);
results.push({
  error: aborted.name === "Aborted" ? aborted.name : aborted.stack,
  early: tokens < 20,
  sequences: aborted.sequences?.map((s) => s.length === tokens + 1),
  leaked: live.size + decoder.sequences.size,
});

// Callers that throw: their error arrives, the streamer ends, and nothing stays.
const throwing = [];
for (const who of ["streamer", "stopping_criteria", "logits_processor"])
  for (const after of [0, 2])
    for (const num_beams of who === "streamer" ? [1] : [1, 2]) {
      const decoder = new Decoder();
      let [calls, ended] = [0, 0];
      const caller = () => {
        if (calls++ === after) throw new RangeError("mine");
      };
      const value = who === "streamer" ? { put: caller, end: () => ended++ } : caller;
      const call = generate(
        decoder,
        [1, 2],
        {},
        { fields: { num_beams, max_new_tokens: 8 }, [who]: value },
      );
      const error = await call.catch((e) => e.message);
      const leaked = live.size + decoder.sequences.size;
      throwing.push([error, ended === +(who === "streamer"), leaked]);
    }
results.push(throwing);
process.stdout.write(JSON.stringify(results));
