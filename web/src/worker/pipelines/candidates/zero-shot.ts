// Classification by any labels: of pictures with CLIP or SigLIP, of sounds with CLAP.

import {
  candidate_ids,
  candidates,
  compared,
  MAX_TEXTS,
  padding_of,
} from "../../../logic/tasks/candidates.ts";
import type { TaskInput, TaskTensor } from "../../../protocol/tasks.ts";
import type { Ending, TaskHost } from "../host.ts";
import { described, textFeeds, unknownInput } from "../inputs.ts";
import { numbers } from "../outputs.ts";
import type { TaskRunner } from "../runner.ts";

type Tensors = Record<string, TaskTensor>;

/** Runs the graph "model" on a picture. further: inputs of the graph. */
export type Show = (
  ...given: [...Parameters<Perceive>, further?: Tensors]
) => Promise<{ tensors: Tensors; image: { height: number; width: number } }>;

/** Runs the graph "model" on an input. */
export type Perceive = (host: TaskHost, input: TaskInput, ending: Ending) => Promise<Tensors>;

/** What "text" computes of texts, for the next inputs. */
const read = new WeakMap<TaskHost, Map<string, Tensors>>();

/** The token that fills up texts. */
function padding(host: TaskHost): number {
  const { pad_token: token } = host.config("tokenizer_config.json");
  const name = (token as { content?: unknown } | undefined)?.content ?? token;
  const tokenizer = host.needTokenizer();
  const own = typeof name === "string" ? tokenizer.idOf(name) : undefined;
  return padding_of(host.config(), own ?? null, tokenizer.id("eos_token") ?? null);
}

async function readText(host: TaskHost, text: string, ending: Ending): Promise<Tensors> {
  const known = read.get(host) ?? new Map<string, Tensors>();
  read.set(host, known);
  const found = known.get(text);
  if (found) return found;
  const longest = described(host, "text").max_length ?? Infinity;
  const ids = candidate_ids(host.config(), text, host.needTokenizer().encode(text), longest);
  const graph = host.graph("text");
  const feeds = textFeeds(graph, ids, padding(host));
  for (const { name } of graph.inputs) if (!feeds[name]) unknownInput(name, host.task);
  const outputs = await host.run("text", feeds, ending);
  if (known.size >= MAX_TEXTS) known.clear();
  known.set(text, outputs);
  return outputs;
}

/** What "scores" computes of an input and a text. */
export async function scored(
  host: TaskHost,
  seen: Tensors,
  text: string,
  ending: Ending,
): Promise<Float32Array> {
  const { inputs, outputs } = host.graph("scores");
  const all = { ...seen, ...(await readText(host, text, ending)) };
  const feeds = Object.fromEntries(
    inputs.map(({ name }) => [name, all[name] ?? unknownInput(name, host.task)]),
  );
  const made = await host.run("scores", feeds, ending);
  return numbers(made[outputs[0]!.name]!).data;
}

/** `pipe(inputs, candidate_labels, {hypothesis_template})` */
export function zeroShot(perceive: Perceive): TaskRunner {
  return {
    options: ["candidate_labels", "hypothesis_template"],
    prepare(host, { given }) {
      const { labels, texts } = candidates(given, host.task);
      return async (input, ending) => {
        const seen = await perceive(host, input, ending);
        const logits: number[] = [];
        for (const text of texts) logits.push((await scored(host, seen, text, ending))[0]!);
        return compared(host.config(), labels, logits);
      };
    },
  };
}
