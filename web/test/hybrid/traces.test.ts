// Replayed traces: the time to the first token beside that of either side alone, on a clock of its
// own. The same network at the same times, and the same requests, for all three.

import assert from "node:assert/strict";
import test from "node:test";
import { hybrid } from "../../src/extras/hybrid/hybrid.ts";
import type { Cloud } from "../../src/extras/hybrid/openai.ts";
import { OVERHEAD } from "../../src/extras/hybrid/rates.ts";
import { never, VirtualClock } from "./fakes.ts";

const REQUESTS = 200;
const EVERY = 60_000; // milliseconds between two requests
const TOKENS = 3;

/** The network at a time: undefined where nothing arrives. */
type Network = (ms: number) => { rtt: number; bits: number } | undefined;

interface Trace {
  network: Network;
  /** What the browser believes. Default: connected. */
  online?: (ms: number) => boolean;
  /** Milliseconds of the device per token of the prompt, and of the cloud until it computes. */
  device: number;
  queue: number;
}

const G4: Network = () => ({ rtt: 80, bits: 20e6 });
const G2: Network = (ms) => ({ rtt: 1200 + 900 * Math.sin(ms / 7e4), bits: 35e3 });
const down = (ms: number, of: number, share: number) => (ms % of) / of > 1 - share;
const TRACES: Record<string, Trace> = {
  "4G, slow device": { network: G4, device: 12, queue: 150 },
  "4G, fast device": { network: G4, device: 0.5, queue: 250 },
  "4G, alike": { network: G4, device: 2.5, queue: 300 },
  "4G, busy cloud": { network: G4, device: 6, queue: 1500 },
  "2G": { network: G2, device: 6, queue: 200 },
  "2G, slow device": { network: G2, device: 40, queue: 200 },
  offline: { network: () => undefined, online: () => false, device: 8, queue: 150 },
  "offline, not noticed": { network: () => undefined, device: 8, queue: 150 },
  flapping: {
    network: (ms) => (down(ms, 600_000, 0.4) ? undefined : G4(ms)),
    device: 8,
    queue: 150,
  },
  "flapping fast": {
    network: (ms) => (down(ms, 90_000, 0.5) ? undefined : G4(ms)),
    device: 8,
    queue: 150,
  },
  "a tunnel each hour": {
    network: (ms) => (down(ms, 3_600_000, 0.04) ? undefined : G4(ms)),
    device: 12,
    queue: 150,
  },
  "4G to 2G and back": {
    network: (ms) => (down(ms, 1_500_000, 0.5) ? G2(ms) : G4(ms)),
    device: 6,
    queue: 200,
  },
};

/** Reproducible numbers: mulberry32 of a request and of what they are for. */
function random(request: number, what: number): number {
  let a = (request * 2654435761 + what * 40503 + 1) >>> 0;
  a = (a + 0x6d2b79f5) >>> 0;
  let t = Math.imul(a ^ (a >>> 15), a | 1);
  t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}

/** Tokens of a request's prompt: mostly short. */
const prompt = (k: number) => Math.round(20 + 400 * random(k, 1) ** 2);

/** Milliseconds to the first token of each side alone. */
function deviceAlone(trace: Trace, k: number): number {
  return trace.device * (prompt(k) + OVERHEAD) * (0.9 + 0.2 * random(k, 2));
}

function cloudAlone(trace: Trace, k: number): number {
  const network = trace.network(k * EVERY);
  if (!network || trace.online?.(k * EVERY) === false) return Infinity;
  const queue = trace.queue * (0.6 + 0.8 * random(k, 3)) * (random(k, 4) < 0.02 ? 5 : 1);
  return 2 * network.rtt + (prompt(k) * 4 * 8 * 1000) / network.bits + queue;
}

const p95 = (times: number[]) => times.sort((a, b) => a - b)[Math.floor(times.length * 0.95)]!;

/** The times of a hybrid, and the share of calls that were computed twice. */
async function replay(trace: Trace): Promise<[times: number[], raced: number]> {
  const clock = new VirtualClock();
  const times: number[] = [];
  let [k, raced] = [0, 0];
  const cloud: Cloud = {
    baseURL: "https://x/",
    model: "x",
    side: () => ({
      where: "cloud",
      can: () => true,
      async *write(task, signal) {
        const ms = cloudAlone(trace, k);
        if (ms === Infinity) await never(signal);
        await clock.sleep(ms, signal);
        for (let i = 0; i < task.tokens; i++) {
          if (!trace.network(clock.now())) await never(signal);
          yield { text: "x ", tokens: 1 };
          await clock.sleep(15, signal);
        }
        yield { text: "", tokens: 0, finish: "length" };
      },
    }),
  };
  const device = async (_: unknown, options: Record<string, unknown> = {}) => {
    const signal = options.signal as AbortSignal;
    await clock.sleep(deviceAlone(trace, k), signal);
    for (let i = 0; i < (options.max_new_tokens as number); i++) {
      (options.streamer as (text: string) => void)("abc ");
      await clock.sleep(30, signal);
    }
    return [{ finish_reasons: "length" }];
  };
  const write = hybrid({
    device: Object.assign(device, { task: "text-generation" }),
    cloud,
    keep: null,
    clock,
    machine: async () => ({ online: trace.online?.(clock.now()) ?? true, saveData: false }),
  });
  for (; k < REQUESTS; k++) {
    clock.time = k * EVERY;
    await clock.run(write("x".repeat(4 * prompt(k)), { max_new_tokens: TOKENS }));
    times.push(write.last!.firstToken);
    if (write.last!.decision.where === "race") raced++;
  }
  return [times, raced / REQUESTS];
}

for (const [name, trace] of Object.entries(TRACES))
  test(`p95 of the first token, ${name}`, async (t) => {
    const all = Array.from({ length: REQUESTS }, (_, k) => k);
    const sides = [deviceAlone, cloudAlone].map((side) => p95(all.map((k) => side(trace, k))));
    const best = p95(all.map((k) => Math.min(deviceAlone(trace, k), cloudAlone(trace, k))));
    const [times, raced] = await replay(trace);
    const found = p95(times);
    t.diagnostic(
      `${[...sides, found, best].map((ms) => ms.toFixed(0)).join(", ")} ms: device, cloud, ` +
        `hybrid, the faster side of each call; ${(100 * raced).toFixed(0)} % raced`,
    );
    assert.ok(found <= 1.1 * Math.min(...sides), `${found} ms`);
  });
