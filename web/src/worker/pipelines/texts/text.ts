// What the pipelines of texts share: encodings, and runs of the graph for logic/tasks/texts.py.

import {
  choose_output,
  first_position,
  tokens_fed,
  type Values,
} from "../../../logic/tasks/inputs.ts";
import type { Run, TextModel, Words } from "../../../logic/tasks/texts.ts";
import type { EncodeOptions, Encoding } from "../../../logic/text/encoding.ts";
import type { TaskTensor } from "../../../protocol/tasks.ts";
import { drive } from "../../../shared/drive.ts";
import { InputError } from "../../../shared/errors.ts";
import { encodingsOf, marksContinuations } from "../../text/encoding.ts";
import type { Ending, TaskHost } from "../host.ts";
import { integers, planLength, unknownInput } from "../inputs.ts";
import { type Numbers, numbers } from "../outputs.ts";

/** The most tokens of a text. */
export function longest(host: TaskHost): number | null {
  return host.processor.text?.max_length ?? null;
}

/** The encodings of a text or a pair, by default cut to the length that the model takes. */
export function encodings(
  host: TaskHost,
  text: string,
  pair: string | null,
  options: Partial<EncodeOptions> = {},
): Encoding[] {
  const most = Math.min(options.max_length ?? Infinity, longest(host) ?? Infinity);
  const max_length = Number.isFinite(most) ? most : null;
  return encodingsOf(host.needTokenizer(), text, pair, { ...options, max_length });
}

/** The tokenizer, as logic reads it. */
export function wordsOf(host: TaskHost): Words {
  const own = host.needTokenizer();
  return {
    special: (name) => own.token(name) ?? null,
    id_of: (token) => own.idOf(token) ?? null,
    token_of: (id) => own.tokenOf(id),
    ids: (text) => own.encode(text, false),
    decode: (ids, skip_special_tokens) => own.decode(ids, { skip_special_tokens }),
    join: (tokens) => own.join(tokens),
    encodings: (text, pair, options) => encodings(host, text, pair, options),
  };
}

/** The model of a task, as logic reads it. */
export function modelOf(host: TaskHost): TextModel {
  const own = host.needTokenizer();
  return {
    task: host.task,
    config: host.config(),
    words: wordsOf(host),
    marks: marksContinuations(own),
    padding_side: own.config.padding_side === "left" ? "left" : "right",
    longest: longest(host),
  };
}

/** What a task returns. */
export function done<Result>(
  host: TaskHost,
  steps: Generator<Run, Result, Values[]>,
  ending: Ending,
): Promise<Result> {
  return drive(steps as Generator<Run, Result, unknown>, async ({ read, outputs, per_token }) => {
    const made = await forward(host, read, per_token, ending);
    return outputs.map((name) => made[choose_output(Object.keys(made), [name], host.task)]!);
  });
}

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
  const { ids, type_ids } = encoding;
  const n = ids.length;
  if (!n) throw new InputError("the text has no tokens", host.task, "Give a text.");
  const graph = host.graph("model");
  const length = planLength(graph.plans, n);
  const config = host.config();
  const pad = Number.isInteger(config.pad_token_id) ? Number(config.pad_token_id) : 0;
  const feeds: Record<string, TaskTensor> = {};
  for (const { name, dtype } of graph.inputs) {
    const fed = tokens_fed(name, ids, type_ids, length, pad, first_position(config));
    feeds[name] = integers(dtype, fed ?? unknownInput(name, host.task));
  }
  const outputs = await host.run("model", feeds, ending);
  return Object.fromEntries(
    Object.entries(outputs).map(([name, tensor]) => {
      const { dims, data } = numbers(tensor);
      if (!perToken || length === n) return [name, { dims, data }];
      const row = dims.slice(2).reduce((a, b) => a * b, 1);
      return [name, { dims: [1, n, ...dims.slice(2)], data: data.subarray(0, n * row) }];
    }),
  );
}
