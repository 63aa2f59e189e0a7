// Edgewise as contender: the engine and the decoder of web/src, without the tokenizer.
import { Engine } from "../../../web/src/device/wasm/engine.ts";
import { Profile } from "../../../web/src/page/profile.ts";
import { HttpSource } from "../../../web/src/shared/files/http.ts";
import { EngineDecoder } from "../../../web/src/worker/model/decoder.ts";
import { Weights } from "../../../web/src/worker/model/weights.ts";
import { openPackage } from "../../../web/src/worker/package/package.ts";
import { Recorder } from "../../../web/src/worker/profile/recorder.ts";
import { argmax, base64, now, serve, several } from "./rpc.js";

const urls = {
  engineUrl: new URL("/engine/", location.href).href,
  threadUrl: new URL("/worker.js", location.href).href,
};
let engine;
let decoder;
let sequence;
let logits;
let model;

async function start(flavour, threads) {
  engine = await Engine.open({ ...urls, flavour, threads });
  const { choice } = engine;
  if (choice.flavour !== flavour || choice.threads !== threads)
    throw new Error(`asked for ${flavour} with ${threads} threads, got ${JSON.stringify(choice)}`);
}

serve({
  /** Fetches, compiles and starts an engine: milliseconds in all, and after the compilation. */
  async engine(flavour, threads) {
    const begin = now();
    await start(flavour, threads);
    return { all: now() - begin, instantiate: engine.instantiateMs };
  },
  async open(url, flavour, threads) {
    const begin = now();
    await start(flavour, threads);
    const opened = await openPackage(
      new HttpSource(new URL(url, location.href).href, {
        signal: new AbortController().signal,
        onBytes() {},
      }),
    );
    const weights = new Weights(engine, opened.manifest);
    await opened.finish(weights.extents(opened.manifest));
    decoder = new EngineDecoder(
      engine,
      opened.manifest.decoder,
      weights,
      opened.files,
      {},
      {},
      url,
      true,
    );
    return { ms: now() - begin };
  },
  async prefill(ids) {
    const begin = now();
    if (sequence) decoder.close(sequence);
    sequence = decoder.open();
    logits = await decoder.forward(sequence, ids);
    argmax(new Float32Array(engine.memory.buffer, logits, decoder.vocab_size));
    return now() - begin;
  },
  /** Runs the ids one by one after the first `past` tokens; returns the milliseconds of each. */
  async decode(past, ids) {
    decoder.truncate(sequence, past);
    const times = [];
    for (const id of ids) {
      const begin = now();
      logits = await decoder.forward(sequence, [id]);
      argmax(new Float32Array(engine.memory.buffer, logits, decoder.vocab_size));
      times.push(now() - begin);
    }
    return times;
  },
  logits: () => base64(new Float32Array(engine.memory.buffer, logits, decoder.vocab_size).slice()),
  memory: () => engine.memoryBytes,

  /**
   * A network or an operator: a compiled plan (networks.py) with its weights and inputs in one
   * file.
   */
  async model([url], flavour, threads) {
    await start(flavour, threads);
    const [{ inputs, slots, plan, notes }, data] = await Promise.all([
      (await fetch(`${url}.json`)).json(),
      (await fetch(`${url}.bin`)).arrayBuffer(),
    ]);
    const bytes = (at, n) => new Uint8Array(data, at, n);
    model = { plan: engine.loadPlan(bytes(...plan), url, "model", bytes(...notes)), inputs: [] };
    slots.forEach(({ name, kind, size, at }, slot) => {
      const buffer = engine.allocate(size, name);
      if (kind === "weight") engine.write(buffer, bytes(at, size));
      if (kind === "input")
        model.inputs.push({
          buffer,
          data: bytes(...inputs.find((i) => i.name === name).at).slice(),
        });
      if (kind === "output") model.output = buffer;
      engine.bind(model.plan, slot, buffer, name);
    });
    engine.init(model.plan, url);
  },
  modelTimes: (ms) =>
    several(ms, async () => {
      for (const { buffer, data } of model.inputs) engine.write(buffer, data);
      engine.run(model.plan, "model");
      model.y = await engine.read(model.output);
    }),
  /** Its profile over runs of the given number of milliseconds. */
  async modelProfile(ms) {
    const recorder = new Recorder(engine);
    await several(ms, () => engine.run(model.plan, "model"));
    const profile = new Profile(await recorder.stop());
    return { text: String(profile), nodes: profile.byNode() };
  },
  /** The trace of one run. */
  async modelTrace() {
    const recorder = new Recorder(engine);
    engine.run(model.plan, "model");
    return (await new Profile(await recorder.stop()).trace()).text();
  },
  modelResult: () => base64(new Float32Array(model.y.buffer)),
});
