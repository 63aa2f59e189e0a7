// Plans of single kernels (kernels/__init__.py).
import { Engine } from "../../../web/src/device/wasm/engine.ts";
import { best, serve } from "./rpc.js";

const threadUrl = new URL("/worker.js", location.href).href;
let engine;
let cases;
let data;

const bytes = (at, n) => new Uint8Array(data, at, n);
/** Fills x by repeating a pattern of `period` elements. */
function fill(x, value, period) {
  for (let i = 0; i < Math.min(period, x.length); i++) x[i] = value(i);
  for (let n = period; n < x.length; n *= 2) x.copyWithin(n, 0, Math.min(n, x.length - n));
}
const FILL = {
  floats: (p) =>
    fill(
      new Float32Array(p.buffer, p.byteOffset, p.length >> 2),
      (i) => ((i * 7919) % 1000) / 1000 - 0.4995,
      1000,
    ),
  halves: (p) =>
    fill(new Uint16Array(p.buffer, p.byteOffset, p.length >> 1), (i) => 0x2c00 + i, 1024),
  ids: (p) => {
    const x = new BigInt64Array(p.buffer, p.byteOffset, p.length >> 3);
    for (let i = 0; i < x.length; i++) x[i] = BigInt((i * 7919) % x.length);
  },
  bytes: (p) => fill(p, (i) => (i * 7919) >> 3, 2048),
  bools: (p) => {
    for (let i = 0; i < p.length; i++) p[i] = ((i * 7919) >> 3) & 1;
  },
  ones: (p) => new Float32Array(p.buffer, p.byteOffset, p.length >> 2).fill(1),
  zeros: () => {},
};

serve({
  async open(url, engineUrl, flavour, threads) {
    engine = await Engine.open({
      engineUrl: new URL(engineUrl, location.href).href,
      threadUrl,
      flavour,
      threads,
      full: true,
    });
    if (engine.choice.flavour !== flavour)
      throw new Error(`asked for ${flavour}, got ${engine.choice.flavour}`);
    [cases, data] = await Promise.all([
      (await fetch(`${url}.json`)).json(),
      (await fetch(`${url}.bin`)).arrayBuffer(),
    ]);
  },
  time(index) {
    const { name, at, size, slots } = cases[index];
    const plan = engine.loadPlan(bytes(at, size), name);
    const held = slots.map(({ size: n, fill }, slot) => {
      const buffer = engine.allocate(n, name);
      const values = new Uint8Array(n);
      FILL[fill](values);
      engine.write(buffer, values);
      engine.bind(plan, slot, buffer, name);
      return buffer;
    });
    engine.init(plan, name);
    const ms = best(() => engine.run(plan, name));
    engine.freePlan(plan);
    held.forEach((buffer) => engine.release(buffer));
    return ms;
  },
});
