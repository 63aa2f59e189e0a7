// A language model of a few numbers on a device that can be lost, for tests of training runs. Its
// plans compute with sums that depend on all that a step does: ids, rate, seed, states.

import type { Device } from "../../src/device/device.ts";
import type { ManifestSlot } from "../../src/gen/schema.ts";
import { EngineError } from "../../src/shared/errors.ts";
import { EngineDecoder } from "../../src/worker/model/decoder.ts";
import type { Model } from "../../src/worker/model/model.ts";
import { Weights } from "../../src/worker/model/weights.ts";
import type { ProgramInfo, StateInfo } from "../../src/worker/package/manifest.ts";

interface FakeBuffer {
  bytes: number;
  data: Uint8Array<ArrayBuffer>;
}

const STATES: StateInfo[] = [
  ["layer.lora_A.weight", "adapter", "float32", [2, 2]],
  ["adapter/scale", "adapter", "float32", [1]],
  ["moment", "optimizer", "float32", [2, 2]],
  ["training/step", "step", "int64", [1]],
].map(([name, kind, dtype, shape]) => {
  const bytes = (shape as number[]).reduce((a, b) => a * b, dtype === "int64" ? 8 : 4);
  return { name, kind, dtype, shape, bytes, initial: ["fill", 0] } as StateInfo;
});

const slot = (name: string, kind: ManifestSlot["kind"], bytes: number): ManifestSlot => ({
  name,
  kind,
  dtype: "float32",
  shape: [bytes / 4],
  bytes,
});
const states = STATES.map(({ name, bytes }) => slot(name, "state", bytes));
const batch = [slot("input_ids", "input", 32), slot("labels", "input", 32)];
const plans: Record<string, ManifestSlot[]> = {
  initialize: [...states, slot("seed", "input", 8)],
  train: [
    ...states,
    ...batch,
    slot("seed", "input", 8),
    slot("learning_rate", "input", 4),
    slot("loss", "output", 4),
  ],
  accumulate: [...states, ...batch, slot("seed", "input", 8), slot("loss", "output", 4)],
  evaluate: [...states, ...batch, slot("loss", "output", 4)],
};
export const PROGRAM: ProgramInfo = {
  name: "lora",
  batch: 1,
  sequence: 4,
  lora: { r: 2, lora_alpha: 2, use_rslora: false },
  saved: [],
  optimizer: { type: "AdamW", lr: 0.1 },
  maxGradNorm: null,
  accumulation: undefined,
  source: undefined,
  plans: new Map(
    Object.entries(plans).map(([kind, slots]) => [
      kind as "train",
      { file: kind, slots, arenaBytes: 0 },
    ]),
  ),
  states: new Map(STATES.map((s) => [s.name, s])),
  padTokenId: 0,
  eosTokenId: 0,
};

const bytes = (name: string) => new TextEncoder().encode(name);

/** The plans, by name. */
export const FILES = new Map(["one", ...Object.keys(plans)].map((name) => [name, bytes(name)]));

/** What happens to all devices of a model. */
export interface Fate {
  /** Runs of training plans on each device before it is lost, in the order of devices. */
  runs: number[];
  /** Devices that were opened. */
  opened: number;
  /** Called before each run of a training plan, with the device's number. */
  before?: (device: number) => void;
  /** Called before each run of an evaluation's plan; returns whether the device is lost in it. */
  evaluates?: () => boolean;
}

const words = (buffer: FakeBuffer) => new Float32Array(buffer.data.buffer);

/** A GPU. Its plans are the names of what they compute. */
export class FakeDevice {
  readonly info = { name: "webgpu", number: 0 };
  readonly memoryBytes = 0;
  lost: EngineError | undefined;
  private left: number;
  private readonly plans = new Map<number, { kind: string; slots: (FakeBuffer | undefined)[] }>();
  private readonly number: number;

  constructor(private readonly fate: Fate) {
    this.number = this.info.number = fate.opened++;
    this.left = fate.runs[this.number] ?? Infinity;
  }
  async replacement(): Promise<Device | undefined> {
    return this.lost && (new FakeDevice(this.fate) as unknown as Device);
  }
  allocate = (bytes: number): FakeBuffer => ({ bytes, data: new Uint8Array(bytes) });
  release(): void {}
  write(to: FakeBuffer, data: Uint8Array, at = 0): void {
    to.data.set(data, at);
  }
  fill(to: FakeBuffer): void {
    to.data.fill(0);
  }
  async read(from: FakeBuffer, at = 0, bytes = from.bytes - at): Promise<Uint8Array<ArrayBuffer>> {
    if (this.lost) throw this.lost;
    return from.data.slice(at, at + bytes);
  }
  readAll(ranges: [FakeBuffer, number][]): Promise<Uint8Array<ArrayBuffer>[]> {
    return Promise.all(ranges.map(([from, bytes]) => this.read(from, 0, bytes)));
  }
  async ready(): Promise<void> {
    if (this.lost) throw this.lost;
  }
  async hosted(): Promise<number> {
    if (this.lost) throw this.lost;
    return 0;
  }
  loadPlan(kind: Uint8Array): number {
    if (this.lost) throw this.lost;
    this.plans.set(this.plans.size, { kind: new TextDecoder().decode(kind), slots: [] });
    return this.plans.size - 1;
  }
  freePlan(): void {}
  bind(plan: number, at: number, buffer: FakeBuffer): void {
    this.plans.get(plan)!.slots[at] = buffer;
  }
  inRuns = (): boolean => true;
  initSteps(): void {}
  register(): void {}
  initSpan = (): [number, number] => [0, 0];
  describe = (): object => ({ initCount: 0 });
  run(plan: number): void {
    const { kind, slots } = this.plans.get(plan)!;
    if (!(kind in plans)) return;
    if (kind === "train") this.fate.before?.(this.number);
    const ends = kind === "evaluate" && this.fate.evaluates?.();
    if (ends || (kind === "train" && this.left-- <= 0))
      this.lost = new EngineError("the GPU was lost");
    if (this.lost) return;
    const of = (name: string) => slots[plans[kind]!.findIndex((s) => s.name === name)]!;
    const [a, moment] = [words(of("layer.lora_A.weight")), words(of("moment"))];
    if (kind === "initialize") {
      a.fill(1 / (1 + of("seed").data[0]!));
      words(of("adapter/scale"))[0] = 1;
      return;
    }
    const input = of("input_ids").data.reduce((x, y, i) => x + y * (i + 1), 0) / 1000;
    if (kind === "train")
      a.forEach((x, i) => {
        moment[i] = 0.9 * moment[i]! + x * input + of("seed").data[i]! / 300;
        a[i] = x - words(of("learning_rate"))[0]! * moment[i]!;
      });
    words(of("loss"))[0] = 2 + a.reduce((x, y) => x + y) * input;
  }
}

/** A model with a LoRA adapter. */
export function fakeModel(fate: Fate): Model {
  const device = new FakeDevice(fate) as unknown as Device;
  const weights = new Weights(device, { weights: new Map() });
  const one = {
    tokens: 1,
    file: "one",
    registers: { past: 0, last: 0 },
    slots: [...states.slice(0, 2), slot("ids", "input", 8), slot("logits", "output", 16)],
  };
  const info = { recompute: false, capacity: 8, vocabSize: 256, caches: [], plans: [one] };
  const decoder = new EngineDecoder(
    device,
    info as unknown as EngineDecoder["info"],
    weights,
    FILES,
    {},
    {},
    "a fake",
    false,
  );
  const tokenizer = { encode: (text: string) => [...bytes(text)], id: () => 0 };
  const model = {
    device,
    decoder,
    tokenizer,
    weights,
    adapters: undefined,
    programs: new Map([["lora", PROGRAM]]),
    files: FILES,
    key: "fake",
    where: "a fake",
  } as unknown as Model;
  // as load.ts
  decoder.refill = async (other, signal) => {
    signal?.throwIfAborted();
    Object.assign(model, { device: other, weights: new Weights(other, { weights: new Map() }) });
    model.adapters?.moved(other, model.weights);
    return model.weights;
  };
  decoder.refilled = () => model.adapters?.revive();
  return model;
}
