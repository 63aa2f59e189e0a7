// The graphs of a model that hears pieces of words, as
// python/edgewise/compiler/task_package/hearing_graphs.py names their inputs and outputs.

import type { HearingFields } from "../../../../gen/schema.ts";
import type { Decode } from "../../../../logic/speech/canary.ts";
import { check_longest, plan_length, total_of } from "../../../../logic/speech/samples.ts";
import type { Join, Joined } from "../../../../logic/speech/transducer.ts";
import type { TaskTensor } from "../../../../protocol/tasks.ts";
import type { Ending, TaskHost } from "../../host.ts";
import { numbers } from "../../outputs.ts";
import { soundDescription } from "../features.ts";

type Tensors = Record<string, TaskTensor>;

const HEARING = "hearing/";

/** What is known of the sound that was encoded last, and of tokens. */
export class Encoded {
  private rows = new Float32Array(0);
  private width = 0;
  /** Outputs of the predictor by the numbers of tokens. */
  private known = new Map<number, Tensors>();
  /** Inputs of a decoder: what is encoded, and what was computed of the tokens before. */
  private inputs: Tensors = {};
  private memory: TaskTensor | undefined;

  constructor(
    private readonly host: TaskHost,
    private readonly fields: HearingFields,
    private readonly ending: Ending,
  ) {}

  /** The tokens of frames. */
  async tokens(samples: Float32Array): Promise<number[]> {
    const { ids, count } = await this.encode(samples);
    return integers(ids!).slice(0, count);
  }

  /** Encodes samples; returns the number of frames. */
  async frames(samples: Float32Array): Promise<number> {
    const { hidden, count } = await this.encode(samples);
    const { data, dims } = numbers(hidden!);
    this.rows = data as Float32Array<ArrayBuffer>;
    this.width = dims[1]!;
    this.known.clear();
    this.inputs = { [`${HEARING}hidden`]: hidden!, [`${HEARING}count`]: ids([1], [count]) };
    return count;
  }

  private async encode(samples: Float32Array) {
    const { host, ending } = this;
    const sound = soundDescription(host);
    check_longest(sound, samples.length, host.task);
    const valid = Math.max(samples.length, sound.length.least);
    const total = total_of(sound, valid);
    const audio = new Float32Array(plan_length(sound, total) ?? total);
    audio.set(samples);
    const unit = sound.length.multiple;
    const dims = unit > 1 ? [audio.length / unit, unit] : [1, audio.length];
    const feeds = { audio: floats(dims, audio), valid: ids([1], [valid]) };
    const made = await host.run("pre", feeds, ending);
    const inputs = host.graph("encoder").inputs.map(({ name }) => [name, made[name]!] as const);
    const found = await host.run("encoder", Object.fromEntries(inputs), ending);
    const [count = 0] = integers(found[`${HEARING}count`]!);
    return { count, ids: found[`${HEARING}ids`], hidden: found[`${HEARING}hidden`] };
  }

  /** The likeliest token after others. */
  async decode({ tokens, past }: Decode): Promise<number> {
    const [layers = 1, , , width = 1] = this.fields.states[0]!;
    if (!past) this.memory = floats([layers, 1, 0, width], new Float32Array(0));
    const feeds = {
      ...this.inputs,
      [`${HEARING}context`]: ids([1, tokens.length], tokens),
      [`${HEARING}state0`]: this.memory!,
    };
    const made = await this.host.run("decoder", feeds, this.ending);
    this.memory = made[`${HEARING}next0`]!;
    return integers(made[`${HEARING}tokens`]!)[0]!;
  }

  /** Scores of tokens at a frame. */
  async join({ frame, place, parent, context, keep }: Join): Promise<Joined> {
    const { host, ending, width } = this;
    const row = this.rows.slice(frame * width, (frame + 1) * width);
    const at = { [`${HEARING}frame`]: floats([1, width], row as Float32Array<ArrayBuffer>) };
    const joins = host.has("joiner");
    const made = (joins && this.known.get(place)) || (await this.predict(parent, context, at));
    let scores = made;
    if (joins) {
      const predicted = `${HEARING}predicted`;
      scores = await host.run("joiner", { ...at, [predicted]: made[predicted]! }, ending);
    }
    const kept = new Set(keep);
    for (const n of this.known.keys()) if (!kept.has(n)) this.known.delete(n);
    this.known.set(place, made);
    const durations = scores[`${HEARING}durations`];
    return {
      tokens: integers(scores[`${HEARING}tokens`]!),
      scores: numbers(scores[`${HEARING}scores`]!).data,
      durations: durations ? numbers(durations).data : [],
    };
  }

  /** The outputs of the predictor after some tokens. */
  private predict(parent: number, context: ArrayLike<number>, at: Tensors): Promise<Tensors> {
    const { host, ending, fields } = this;
    const feeds: Tensors = { [`${HEARING}context`]: ids([1, context.length], context) };
    if (!host.has("joiner")) Object.assign(feeds, at);
    const before = this.known.get(parent);
    fields.states.forEach((dims, i) => {
      const zeros = () => floats(dims, new Float32Array(dims.reduce((n, d) => n * d, 1)));
      feeds[`${HEARING}state${i}`] = before?.[`${HEARING}next${i}`] ?? zeros();
    });
    return host.run("predictor", feeds, ending);
  }
}

function floats(dims: readonly number[], { buffer }: Float32Array<ArrayBuffer>): TaskTensor {
  return { type: "float32", dims: [...dims], data: new Uint8Array(buffer) };
}

function ids(dims: number[], values: ArrayLike<number>): TaskTensor {
  const { buffer } = BigInt64Array.from(Array.from(values, BigInt));
  return { type: "int64", dims, data: new Uint8Array(buffer as ArrayBuffer) };
}

function integers({ data }: TaskTensor): number[] {
  return Array.from(new BigInt64Array(data.slice().buffer), Number);
}
