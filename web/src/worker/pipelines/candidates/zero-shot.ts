// Classification by any labels: of pictures with CLIP or SigLIP, of sounds with CLAP. Mirrors
// python/edgewise/host/pipelines/zero_shot/candidates.py.

import { sigmoid, softmax } from "../../../logic/post/classification.ts";
import type { TaskInput, TaskTensor } from "../../../protocol/tasks.ts";
import { InputError } from "../../../shared/errors.ts";
import type { Ending, TaskHost } from "../host.ts";
import { candidates, described, integers, planLength, unknownInput } from "../inputs.ts";
import { numbers } from "../outputs.ts";
import type { TaskRunner } from "../runner.ts";

type Tensors = Record<string, TaskTensor>;

/** Runs the graph "model" on an input. */
export type Perceive = (host: TaskHost, input: TaskInput, ending: Ending) => Promise<Tensors>;

const MAX_TEXTS = 1024; // whose results are kept

/** What "text" computes of texts, for the next inputs. */
const read = new WeakMap<TaskHost, Map<string, Tensors>>();

/** The most tokens of a text, and whether each has as many. */
function lengthOf(host: TaskHost): { longest: number; padded: boolean } {
  const { max_length } = described(host, "text");
  return {
    longest: max_length ?? Infinity,
    padded: String(host.config().model_type).includes("siglip"),
  };
}

/** @throws InputError if a text is too long */
function tokensOf(host: TaskHost, text: string): number[] {
  const { longest, padded } = lengthOf(host);
  const ids = host.needTokenizer().encode(text);
  if (ids.length <= longest) return ids;
  if (padded) return [...ids.slice(0, longest - 1), ids.at(-1)!];
  throw new InputError(
    `'${text.slice(0, 100)}' has ${ids.length} tokens, the model takes ${longest}`,
    "candidate_labels",
    "Use a shorter label.",
  );
}

/** The token that fills up texts. */
function padding(host: TaskHost): number {
  const { pad_token: token } = host.config("tokenizer_config.json");
  const name = (token as { content?: unknown } | undefined)?.content ?? token;
  const own = typeof name === "string" ? host.needTokenizer().idOf(name) : undefined;
  if (own !== undefined) return own;
  const { pad_token_id: id = host.needTokenizer().id("eos_token") } = (host.config().text_config ??
    {}) as Record<string, unknown>;
  return typeof id === "number" ? id : 0;
}

async function readText(host: TaskHost, text: string, ending: Ending): Promise<Tensors> {
  const known = read.get(host) ?? new Map<string, Tensors>();
  read.set(host, known);
  const found = known.get(text);
  if (found) return found;
  const ids = tokensOf(host, text);
  const graph = host.graph("text");
  const length = planLength(graph.plans, ids.length);
  const pad = padding(host);
  const values: Record<string, (i: number) => number> = {
    input_ids: (i) => ids[i] ?? pad,
    attention_mask: (i) => (i < ids.length ? 1 : 0),
    position_ids: (i) => i,
    token_type_ids: () => 0,
  };
  const feeds = graph.inputs.map(({ name, dtype }) => [
    name,
    integers(dtype, length, values[name] ?? unknownInput(name, host.task)),
  ]);
  const outputs = await host.run("text", Object.fromEntries(feeds) as Tensors, ending);
  if (known.size >= MAX_TEXTS) known.clear();
  known.set(text, outputs);
  return outputs;
}

/**
 * `pipe(inputs, candidate_labels, {hypothesis_template})`
 * @param thing the word for inputs in the default of the template
 */
export function zeroShot(thing: string, perceive: Perceive): TaskRunner {
  return {
    options: ["candidate_labels", "hypothesis_template"],
    prepare(host, options) {
      const { labels, texts } = candidates(options, `This is a ${thing} of {}.`);
      return async (input, ending) => {
        const seen = await perceive(host, input, ending);
        const { inputs, outputs } = host.graph("scores");
        const logits: number[] = [];
        for (const text of texts) {
          const all = { ...seen, ...(await readText(host, text, ending)) };
          const feeds = Object.fromEntries(
            inputs.map(({ name }) => [name, all[name] ?? unknownInput(name, host.task)]),
          );
          const made = await host.run("scores", feeds, ending);
          logits.push(numbers(made[outputs[0]!.name]!).data[0]!);
        }
        const scores = lengthOf(host).padded ? sigmoid(logits) : softmax(logits);
        return labels
          .map((label, i) => ({ label, score: scores[i]! }))
          .sort((a, b) => b.score - a.score);
      };
    },
  };
}
