// The highest logits, found on the GPU, so that a token reads back 4 bytes or 2 kB, and greedy
// tokens of several runs are read at once. logic/gpu/choice.py has the searches.

import { HIGHEST, holds, suffices } from "../../logic/generation/shortlist.ts";
import {
  levels_of_argmax,
  levels_of_top,
  NONE,
  type Level as Sizes,
  TOP_CHUNK,
} from "../../logic/gpu/choice.ts";
import { REGISTERS } from "../../logic/gpu/wgsl.ts";
import type { Chooser, Chosen, Host, Picker, PlanHandle, TokenRuns, Watcher } from "../device.ts";
import { COMPUTE_STAGE, type Gpu } from "./gpu.ts";
import type { GpuRange } from "./memory.ts";
import { refused } from "./pipelines.ts";
import type { GpuPlan } from "./plan.ts";
import type { WordRange } from "./transfer.ts";

/** Bytes of what a workgroup leaves for the next level: a rank and a token. */
const PAIR = 8;
/** Greedy tokens that are read at once, at most, and so many that a reader sees no pause. */
const MAX_AHEAD = 8;
const AHEAD_MS = 80;

/** What a Picker needs of a GpuDevice. */
export interface ChoiceDevice {
  readonly gpu: Gpu;
  readonly host: Host;
  /** A profile that records each run. */
  readonly watcher: Watcher | undefined;
  /** Does work in the order of calls. */
  add(work: () => void | Promise<void>): void;
  /** Begins a read in the order of calls, unless earlier work has failed. */
  reading<T>(work: () => Promise<T>): Promise<T>;
  /** Reads words, and with them the errors of runs. */
  fetchWords(words: readonly WordRange[]): Promise<Uint8Array<ArrayBuffer>[]>;
  /** Clears and returns the error that the first step of a plan wrote which found one. */
  indexError(plan: GpuPlan, words: Uint8Array<ArrayBuffer>): Error | undefined;
  plan(handle: PlanHandle): GpuPlan;
}

type Name = "argmax" | "top";

/** The programs of core/sampling, each for its first level and for the next ones. */
export class ChoicePrograms {
  /** Resolves when they have been compiled; rejects with EngineError. */
  readonly made: Promise<void>;
  ready = false;
  readonly layout: GPUBindGroupLayout;
  readonly pipelines: Record<Name, GPUComputePipeline[]> = { argmax: [], top: [] };

  constructor(gpu: Gpu) {
    const { device } = gpu;
    const entry = (binding: number, type: GPUBufferBindingType): GPUBindGroupLayoutEntry => ({
      binding,
      visibility: COMPUTE_STAGE,
      buffer: { type },
    });
    this.layout = device.createBindGroupLayout({
      entries: [entry(0, "read-only-storage"), entry(1, "storage")],
    });
    const layout = device.createPipelineLayout({ bindGroupLayouts: [this.layout] });
    const make = async (name: Name, level: number, text: string): Promise<void> => {
      const module = device.createShaderModule({ code: `const LEVEL = ${level}u;${text}` });
      this.pipelines[name][level] = await device.createComputePipelineAsync({
        layout,
        compute: { module, entryPoint: "main" },
      });
    };
    this.made = import("../../gen/shaders_choice.ts").then(({ ARGMAX, TOP }) =>
      Promise.all(
        [0, 1].flatMap((level) => [make("argmax", level, ARGMAX), make("top", level, TOP)]),
      ).then(
        () => {
          this.ready = true;
        },
        (e: unknown) => {
          throw refused(gpu, e, "the search for the highest logits");
        },
      ),
    );
    this.made.catch(() => undefined); // whoever uses it hears of it
  }
}

/** A dispatch of a search. */
interface Level {
  pipeline: number;
  group: GPUBindGroup;
  groups: number;
}

/** Finds the highest of the float32 logits in a buffer. */
export class GpuPicker implements Picker {
  /** Two GPUBuffers that levels write in turns. */
  private readonly pairs: readonly [GPUBuffer, GPUBuffer];
  private readonly levels: Record<Name, Level[]>;
  /** Registers of the runs of a group, and the tokens that they choose. */
  private readonly sets: GPUBuffer;
  private readonly tokens: GPUBuffer;
  /** Milliseconds of a greedy token, as measured; 0: not yet. */
  private pace = 0;

  /**
   * @param logits they begin at a multiple of 256 bytes
   * @param count how many are those of a token; further rows are not looked at
   */
  constructor(
    private readonly device: ChoiceDevice,
    private readonly programs: ChoicePrograms,
    logits: GpuRange,
    count: number,
  ) {
    const { gpu } = device;
    const bytes = Math.ceil(count / TOP_CHUNK) * HIGHEST * PAIR;
    this.pairs = [gpu.buffer(bytes), gpu.buffer(bytes)];
    this.sets = gpu.buffer(4 * REGISTERS * MAX_AHEAD);
    this.tokens = gpu.buffer(4 * MAX_AHEAD);
    const source = { buffer: logits.block.gpu, offset: logits.offset, size: 4 * count };
    this.levels = {
      argmax: this.levelsOf(source, levels_of_argmax(count)),
      top: this.levelsOf(source, levels_of_top(count)),
    };
  }

  private levelsOf(logits: GPUBufferBinding, sizes: readonly Sizes[]): Level[] {
    return sizes.map(({ words, groups }, i) => ({
      pipeline: Math.min(i, 1),
      groups,
      group: this.device.gpu.device.createBindGroup({
        layout: this.programs.layout,
        entries: [
          {
            binding: 0,
            resource: i ? { buffer: this.pairs[(i - 1) % 2]!, size: 4 * words } : logits,
          },
          { binding: 1, resource: { buffer: this.pairs[i % 2]! } },
        ],
      }),
    }));
  }

  begin(members: Readonly<Record<string, number>>, work: number): Chooser | undefined {
    if (!suffices(members)) return undefined;
    if (!members.do_sample)
      return {
        choose: async () => {
          const token = await this.highest();
          return token === NONE ? undefined : () => token;
        },
        ahead: (runs) => this.ahead(runs),
      };
    const shortlist = new Shortlist(members, this.device.host, work);
    return { choose: () => this.drawn(shortlist) };
  }

  /** Adds a search to a pass; returns where the result lies. */
  private search(pass: GPUComputePassEncoder, name: Name): GPUBuffer {
    const levels = this.levels[name];
    for (const { pipeline, group, groups } of levels) {
      pass.setPipeline(this.programs.pipelines[name][pipeline]!);
      pass.setBindGroup(0, group);
      pass.dispatchWorkgroups(groups);
    }
    return this.pairs[(levels.length - 1) % 2]!;
  }

  /** Searches after the latest run, and reads the result with the errors of runs. */
  private async found(name: Name, bytes: number): Promise<Uint32Array> {
    const { device, programs } = this;
    if (!programs.ready) await programs.made; // else with the commands of the run
    const [words] = await device.reading(() => {
      const pass = device.gpu.encoder().beginComputePass();
      const gpu = this.search(pass, name);
      pass.end();
      return device.fetchWords([{ gpu, offset: 0, bytes }]);
    });
    return wordsIn(words!);
  }

  private async highest(): Promise<number> {
    return (await this.found("argmax", 4))[0]!;
  }

  /** Draws one of the highest logits; undefined where that needs the others. */
  private async drawn(shortlist: Shortlist): Promise<Chosen | undefined> {
    const words = await this.found("top", PAIR * HIGHEST);
    const found = candidatesIn(words);
    if (words[0] === NONE || !holds(shortlist.members, found.logits)) {
      shortlist.cleared = false; // all scores are written
      return undefined;
    }
    return (draw) => shortlist.among(found, draw);
  }

  private async ahead(runs: TokenRuns): Promise<number[]> {
    const { device, programs, pace } = this;
    await programs.made;
    const fits = pace ? Math.max(1, Math.floor(AHEAD_MS / pace)) : 1;
    const most = Math.min(runs.most, fits, MAX_AHEAD);
    const plan = device.plan(runs.plan);
    if (plan.mixed || device.watcher) return [];
    device.add(() => plan.connect(most));
    let started = 0;
    const tokens = await device.reading(() => {
      started = performance.now();
      return this.group(plan, runs, most);
    });
    this.pace = (performance.now() - started) / most;
    return tokens;
  }

  /** Submits runs, each with the token of the one before it, and reads their tokens. */
  private async group(
    plan: GpuPlan,
    { input, register, past, where }: TokenRuns,
    most: number,
  ): Promise<number[]> {
    const { device, sets, tokens } = this;
    const { block, offset } = input as GpuRange;
    const encoder = device.gpu.encoder();
    const values = new Int32Array(REGISTERS * most);
    const bytes = 4 * REGISTERS;
    for (let i = 0; i < most; i++) {
      plan.register(register, past + i);
      values.set(plan.registers, REGISTERS * i);
      encoder.copyBufferToBuffer(sets, bytes * i, plan.buffers.registers, 0, bytes);
      const pass = encoder.beginComputePass();
      plan.dispatch(pass);
      const result = this.search(pass, "argmax");
      pass.end();
      encoder.copyBufferToBuffer(result, 0, block.gpu, offset, 4);
      encoder.copyBufferToBuffer(result, 0, tokens, 4 * i, 4);
    }
    plan.give(most);
    device.gpu.device.queue.writeBuffer(sets, 0, values);
    plan.running = where;
    const ranges = [
      { gpu: tokens, offset: 0, bytes: 4 * most },
      { gpu: plan.buffers.errors, offset: 0, bytes: 8 },
    ];
    const [words, errors] = await device.fetchWords(ranges);
    const error = device.indexError(plan, errors!);
    const found = [...wordsIn(words!)];
    const end = found.indexOf(NONE);
    if (end >= 0) return found.slice(0, end); // which is an index out of range for the next run
    if (error) throw error;
    return found;
  }
}

const wordsIn = ({ buffer, byteOffset, length }: Uint8Array<ArrayBuffer>): Uint32Array =>
  new Uint32Array(buffer.slice(byteOffset, byteOffset + length));

/** What pairs of a rank (core/sampling/argmax.wgsl) and a token stand for; rank 0: nothing. */
function candidatesIn(pairs: Uint32Array): Candidates {
  const tokens = new Uint32Array(pairs.length / 2);
  const bits = new Uint32Array(tokens.length);
  let n = 0;
  for (let i = 0; i < pairs.length; i += 2) {
    const rank = pairs[i]!;
    if (!rank) continue;
    tokens[n] = pairs[i + 1]!;
    bits[n++] = rank >>> 31 ? rank & 0x7fffffff : ~rank;
  }
  return { tokens: tokens.subarray(0, n), logits: new Float32Array(bits.buffer, 0, n) };
}

// Sampling from the highest logits alone. logic/generation/shortlist.py says when they suffice.

/** Tokens and their logits, highest first. */
interface Candidates {
  tokens: Uint32Array;
  logits: Float32Array;
}

type Members = Readonly<Record<string, number>>;

/** The highest logits of one generation. */
class Shortlist {
  /** Whether all scores are -infinity. */
  cleared = false;

  /**
   * @param members of ew_sampling
   * @param work address of the scores in the host's memory
   */
  constructor(
    readonly members: Members,
    private readonly host: Host,
    private readonly work: number,
  ) {}

  /** What `draw` draws, with these scores and -infinity for all other tokens. */
  among({ tokens, logits }: Candidates, draw: () => number): number {
    const scores = (): Float32Array => this.host.floats(this.work, this.members.vocab_size!);
    const all = scores();
    if (!this.cleared) all.fill(-Infinity);
    this.cleared = true;
    for (let i = 0; i < tokens.length; i++) all[tokens[i]!] = logits[i]!;
    try {
      return draw();
    } finally {
      const after = scores(); // memory may have grown
      for (const token of tokens) after[token] = -Infinity;
    }
  }
}
