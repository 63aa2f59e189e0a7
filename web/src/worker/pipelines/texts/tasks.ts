// Tasks with a tokenizer and one graph. Names, options and results are those of transformers.js;
// logic/tasks decides what is run and what it means.

import { candidates } from "../../../logic/tasks/candidates.ts";
import {
  type Embedding,
  embedded,
  embedding,
  prompt_tokens,
  text_of,
  type Vectors,
  vectors_of,
} from "../../../logic/tasks/embedding.ts";
import { rank, ranking } from "../../../logic/tasks/ranking.ts";
import {
  asking,
  classify_freely,
  encode_options,
  fill_masks,
  filling,
  find_answers,
  find_entities,
  grouping,
  is_multi_label,
} from "../../../logic/tasks/texts.ts";
import type { EncodeOptions } from "../../../logic/text/encoding.ts";
import { type Recipe, recipe_of } from "../../../logic/text/recipe.ts";
import type { TaskInput } from "../../../protocol/tasks.ts";
import { InputError } from "../../../shared/errors.ts";
import type { Ending, TaskHost } from "../host.ts";
import type { Options } from "../options.ts";
import { labeler, output, row } from "../outputs.ts";
import type { TaskRunner } from "../runner.ts";
import { done, encodings, forward, longest, modelOf, wordsOf } from "./text.ts";

/** Options for the tokenizer, of pipelines that take them. */
const ENCODING = ["truncation", "max_length", "padding", "add_special_tokens"] as const;

function needText(input: TaskInput, task: string): string {
  if (typeof input === "string") return input;
  throw new InputError("the input is no text", task, "Give a string or a list of strings.");
}

/** What is known of a call of feature-extraction. */
interface Asked {
  recipe: Recipe;
  asked: Embedding;
  how: Vectors;
}

function embeddingOf(host: TaskHost, given: Options["given"]): Asked {
  const recipe = recipe_of(modulesOf(host), "modules.json", (name) => host.config(name));
  const asked = embedding(given, recipe);
  const names = host.graph("model").outputs.map(({ name }) => name);
  return { recipe, asked, how: vectors_of(asked, recipe, names, host.task) };
}

/** The model's own way, with all dimensions; else the mean of its states. */
function ownEmbedding(host: TaskHost): Asked {
  const own = embeddingOf(host, {});
  if (!own.how.own) return embeddingOf(host, { pooling: "mean", normalize: true });
  return { ...own, how: { ...own.how, dimensions: null } };
}

async function embed(
  host: TaskHost,
  input: TaskInput,
  { recipe, asked, how }: Asked,
  options: Partial<EncodeOptions>,
  ending: Ending,
): Promise<number[][]> {
  const text = text_of(needText(input, host.task), asked, recipe);
  const [read] = encodings(host, text, null, options);
  const outputs = await forward(host, read!, !how.pooled, ending);
  const skipped = prompt_tokens(how, asked, recipe, wordsOf(host));
  return embedded(how, outputs[how.output]!, 0, read!.ids.length, skipped);
}

/** `pipe(texts, {pooling, normalize, dimensions, quantize, precision, prompt, prompt_name})` */
export const featureExtraction: TaskRunner = {
  options: [
    ...["pooling", "normalize", "dimensions", "quantize", "precision", "prompt", "prompt_name"],
    ...ENCODING,
  ],
  prepare(host, { given }) {
    const asked = embeddingOf(host, given);
    const encode = encode_options(given, asked.recipe.max_length, longest(host));
    return async (input, ending) => {
      const rows = await embed(host, input, asked, encode, ending);
      const one = asked.how.pooled || asked.how.poolings.length;
      return { dims: one ? [] : [rows.length], data: rows.flat() };
    };
  },
  async features(host, input, _pooled, ending) {
    const asked = ownEmbedding(host);
    const encode = encode_options({}, asked.recipe.max_length, longest(host));
    return (await embed(host, input, asked, encode, ending))[0]!;
  },
  embedding(host) {
    const { asked, how } = ownEmbedding(host);
    if (asked.prompt)
      throw new InputError(
        "its embeddings have a prompt",
        "export",
        "Use a model without a default prompt.",
      );
    const { output: tensor, poolings, normalize } = how;
    return { tensor, pooling: poolings.join(", ") || "none", normalize };
  },
};

/** Contents of modules.json; null if there is none. */
function modulesOf(host: TaskHost): unknown {
  try {
    return JSON.parse(host.text("modules.json") ?? "null");
  } catch {
    return {}; // no list: refused
  }
}

/** The outputs of the graph for a text or a pair of texts. */
async function forwardText(
  host: TaskHost,
  input: TaskInput,
  encode: Partial<EncodeOptions>,
  ending: Ending,
): ReturnType<typeof forward> {
  const [text, pair] =
    typeof input === "object" && "text" in input
      ? [input.text, input.text_pair ?? null]
      : [needText(input, host.task), null];
  const [encoding] = encodings(host, text, pair, encode);
  return forward(host, encoding!, false, ending);
}

/** `pipe(texts, {top_k, function_to_apply})` */
export const textClassification: TaskRunner = {
  options: ["top_k", "function_to_apply", ...ENCODING],
  prepare(host, options) {
    const labels = labeler(host, options, 1);
    const encode = encode_options(options.given);
    return async (input, ending) => {
      const outputs = await forwardText(host, input, encode, ending);
      return labels(row(output(host, outputs, "logits"), 0));
    };
  },
  features: async (host, input, pooled, ending) =>
    pooled(await forwardText(host, input, {}, ending)),
};

/** `pipe(texts, candidate_labels, {hypothesis_template, multi_label})` */
export const zeroShotClassification: TaskRunner = {
  options: ["candidate_labels", "hypothesis_template", "multi_label"],
  prepare(host, { given }) {
    const labels = candidates(given, host.task);
    const multi = is_multi_label(given);
    const model = modelOf(host);
    return (input, ending) =>
      done(host, classify_freely(model, needText(input, host.task), labels, multi), ending);
  },
};

/** `pipe(texts, {ignore_labels, aggregation_strategy})` */
export const tokenClassification: TaskRunner = {
  options: ["ignore_labels", "aggregation_strategy"],
  prepare(host, { given }) {
    const how = grouping(given);
    const model = modelOf(host);
    return (input, ending) => {
      const text = needText(input, host.task);
      const parts = encodings(host, text, null).slice(0, 1);
      const offsets = parts.map((part) => part.offsets);
      return done(host, find_entities(model, text, parts, offsets, how), ending);
    };
  },
};

/** `pipe(texts, {top_k, targets})` */
export const fillMask: TaskRunner = {
  options: ["top_k", "targets"],
  prepare(host, { given }) {
    const model = modelOf(host);
    const how = filling(model, given, encode_options({}));
    return async (input, ending) => {
      const steps = fill_masks(model, needText(input, host.task), how);
      const found = await done(host, steps, ending);
      return found.length === 1 ? found[0] : found;
    };
  },
};

/** `pipe(query, documents, {top_k, return_documents, ...})` */
export const textRanking: TaskRunner = {
  options: [
    "top_k",
    "return_documents",
    "function_to_apply",
    "prompt",
    "prompt_name",
    "max_length",
  ],
  prepare(host, { given }) {
    const model = modelOf(host);
    const how = ranking(model, given, modulesOf(host), (name) => host.config(name));
    return (input, ending) => {
      if (
        typeof input !== "object" ||
        !("documents" in input && Array.isArray(input.documents)) ||
        typeof input.query !== "string"
      )
        throw new InputError(
          "the input is no query with documents",
          host.task,
          "Give pipe(query, documents).",
        );
      return done(host, rank(model, input.query, input.documents, how), ending);
    };
  },
};

/** `pipe(question, context, {top_k, doc_stride, max_answer_len, ...})` */
export const questionAnswering: TaskRunner = {
  options: [
    "top_k",
    "doc_stride",
    "max_answer_len",
    "max_seq_len",
    "handle_impossible_answer",
    "align_to_words",
  ],
  prepare(host, { given }) {
    const model = modelOf(host);
    const how = asking(given, model.longest);
    return (input, ending) => {
      if (typeof input !== "object" || !("question" in input && input.question && input.context))
        throw new InputError(
          "the input is no question with a context",
          host.task,
          "Give pipe(question, context).",
        );
      return done(host, find_answers(model, input.question, input.context, how), ending);
    };
  },
};
