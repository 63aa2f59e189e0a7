// What the pipelines of texts share: encodings, and a run of the graph.

import type { TaskTensor } from "../../../protocol/tasks.ts";
import { InputError } from "../../../shared/errors.ts";
import { type EncodeOptions, type Encoding, encodingsOf } from "../../text/encoding.ts";
import type { Ending, TaskHost } from "../host.ts";
import { integers, planLength, unknownInput } from "../inputs.ts";
import { type Numbers, numbers } from "../outputs.ts";

/** Model types whose positions begin after that of the padding token. */
const OFFSET_POSITIONS =
  /^((xlm-)?roberta(-xl|-prelayernorm)?|camembert|mpnet|longformer|data2vec-text|xmod|luke)$/;

/** The most tokens of a text. */
export function longest(host: TaskHost): number | undefined {
  return host.processor.text?.max_length ?? undefined;
}

/** The encodings of a text or a pair, by default cut to the length that the model takes. */
export function encodings(
  host: TaskHost,
  text: string,
  pair: string | undefined,
  options: EncodeOptions = {},
): Encoding[] {
  const most = longest(host);
  const max_length = Math.min(options.max_length ?? Infinity, most ?? Infinity);
  return encodingsOf(host.needTokenizer(), text, pair, {
    ...options,
    ...(Number.isFinite(max_length) ? { max_length } : {}),
  });
}

/** The output of models that make the vector of a text themselves. */
export const EMBEDDING = "sentence_embedding";

/**
 * Runs the graph "model" on an encoding.
 * @param perToken whether the outputs have a row for each token: rows of padding are removed
 * @returns its outputs by name
 * @throws InputError if the text has no tokens
 */
export async function forward(
  host: TaskHost,
  encoding: Encoding,
  perToken: boolean,
  ending: Ending,
): Promise<Record<string, Numbers>> {
  const n = encoding.length;
  if (!n) throw new InputError("the text has no tokens", host.task, "Give a text.");
  const graph = host.graph("model");
  const length = planLength(graph.plans, n);
  const { model_type: kind, pad_token_id: pad } = host.config();
  const first = OFFSET_POSITIONS.test(String(kind)) ? Number(pad ?? 1) + 1 : 0;
  const padId = Number.isInteger(pad) ? Number(pad) : 0;
  const values: Record<string, (i: number) => number> = {
    input_ids: (i) => encoding[i]?.id ?? padId,
    attention_mask: (i) => (i < n ? 1 : 0),
    token_type_ids: (i) => encoding[i]?.type ?? 0,
    position_ids: (i) => first + i,
  };
  const feeds: Record<string, TaskTensor> = {};
  for (const { name, dtype } of graph.inputs) {
    const value = values[name];
    feeds[name] = integers(dtype, length, value ?? unknownInput(name, host.task));
  }
  const outputs = await host.run("model", feeds, ending);
  return Object.fromEntries(
    Object.entries(outputs).map(([name, tensor]) => {
      const { dims, data } = numbers(tensor);
      if (!perToken || length === n || name === EMBEDDING) return [name, { dims, data }];
      const row = dims.slice(2).reduce((a, b) => a * b, 1);
      return [name, { dims: [1, n, ...dims.slice(2)], data: data.subarray(0, n * row) }];
    }),
  );
}
