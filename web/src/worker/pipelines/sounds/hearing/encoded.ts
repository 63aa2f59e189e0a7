// The graphs of a model that hears pieces of words, as
// python/edgewise/compiler/task_package/hearing_graphs.py names their inputs and outputs.

import type { HearingFields } from "../../../../gen/schema.ts";
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
