// Tasks with a tokenizer and one graph. Names, options and results are those of transformers.js;
// the post-processing is that of python/edgewise/host/pipelines/post.

import {
  entailment_of,
  fill_mask,
  softmax,
  zero_shot,
} from "../../../logic/post/classification.ts";
import {
  check_pooling,
  normalized,
  packed,
  pool,
  shortened,
} from "../../../logic/post/embeddings.ts";
import { answer_chars, merge_answers, spans_of } from "../../../logic/post/questions.ts";
import { entities_of, is_subword, type Scored, STRATEGIES } from "../../../logic/post/tokens.ts";
import { type Recipe, recipe_of } from "../../../logic/text/recipe.ts";
import type { TaskInput } from "../../../protocol/tasks.ts";
import { InputError } from "../../../shared/errors.ts";
import { type EncodeOptions, marksContinuations } from "../../text/encoding.ts";
import type { Ending, TaskHost } from "../host.ts";
import { candidates } from "../inputs.ts";
import { Options } from "../options.ts";
import { labeler, labelsOf, output, row } from "../outputs.ts";
import { SILENT, type TaskRunner } from "../runner.ts";
import { EMBEDDING, encodings, forward, longest } from "./text.ts";

/** Options for the tokenizer, of pipelines that take them. */
const ENCODING = ["truncation", "max_length", "padding", "add_special_tokens"] as const;

function encodingOptions(options: Options, longest?: number): EncodeOptions {
  options.flag("padding", true); // has no effect: each text runs alone
  const truncation = options.flag("truncation", true);
  const most = options.count("max_length", longest, undefined);
  return {
    ...(truncation ? {} : { truncation: "do_not_truncate" as const }),
    ...(most === undefined ? {} : { max_length: most }),
    add_special_tokens: options.flag("add_special_tokens", true),
  };
}

function needText(input: TaskInput, task: string): string {
  if (typeof input === "string") return input;
  throw new InputError("the input is no text", task, "Give a string or a list of strings.");
}

/** Outputs that are states of tokens, in order of preference. */
const STATES = ["last_hidden_state", "token_embeddings", "logits"];

/** `pipe(texts, {pooling, normalize, dimensions, quantize, precision})` */
export const featureExtraction: TaskRunner = {
  options: ["pooling", "normalize", "dimensions", "quantize", "precision", ...ENCODING],
  prepare(host, options) {
    const asked = options.optional("pooling");
    const recipe = recipeOf(host, asked === undefined);
    const own = asked === undefined ? recipe : undefined;
    const poolings = own?.poolings ?? [check_pooling(asked!)].filter((how) => how !== "none");
    // as its files say, if the pooling is that of its files, too
    const normalize = options.flag("normalize", own?.normalize ?? false);
    const dimensions = options.count("dimensions", own?.dimensions ?? null, null);
    const bits = options.flag("quantize", false) ? "binary" : "float32";
    const precision = options.choice("precision", bits, ["float32", "binary", "ubinary"]);
    const encode = encodingOptions(options, recipe.max_length ?? undefined);
    return async (input, ending) => {
      const text = needText(input, host.task);
      const cased = recipe.lower_case ? text.toLowerCase() : text;
      const [encoding] = encodings(host, cased, undefined, encode);
      const outputs = await forward(host, encoding!, true, ending);
      const states = output(host, outputs, ...(own?.embeds ? [EMBEDDING] : STATES));
      const [, tokens, size] = states.dims as [number, number, number];
      const finish = (vector: number[]): number[] => {
        const short = shortened(vector, dimensions);
        const unit = normalize ? normalized(short) : short;
        return precision === "float32" ? unit : packed(unit, precision);
      };
      if (own?.embeds) return { dims: [], data: finish([...row(states, 0)]) };
      if (poolings.length) {
        const mask = new Array<number>(tokens).fill(1);
        const joined = poolings.flatMap((how) => pool(states.data, size, mask, how));
        return { dims: [], data: finish(joined) };
      }
      const rows = Array.from({ length: tokens }, (_, i) => finish([...row(states, 0, i)]));
      return { dims: [tokens], data: rows.flat() };
    };
  },
  async features(host, input, _pooled, ending) {
    const { embeds, poolings } = recipeOf(host);
    const own = embeds || poolings.length > 0;
    const given = own ? { dimensions: null } : { pooling: "mean", normalize: true };
    const run = this.prepare(host, new Options(given, this.options), SILENT);
    return ((await run(input, ending)) as { data: number[] }).data;
  },
  embedding(host) {
    const names = host.graph("model").outputs.map((o) => o.name);
    const tensor = STATES.find((name) => names.includes(name)) ?? names[0]!;
    const { poolings, normalize, embeds } = recipeOf(host);
    if (embeds) return { tensor: EMBEDDING, pooling: "none", normalize };
    if (!poolings.length) return { tensor, pooling: "mean", normalize: true };
    return { tensor, pooling: poolings.join(", "), normalize };
  },
};

/** How the model's own vectors are made. */
interface Own extends Recipe {
  /**
   * Whether the graph's own vector of a text is what the model means: its files declare vectors, or
   * it has no states of tokens.
   */
  embeds: boolean;
}

/**
 * @param used whether the vectors are made in this way
 * @throws InputError if the model's files then name what neither the graph nor this pipeline has
 */
function recipeOf(host: TaskHost, used = true): Own {
  const names = host.graph("model").outputs.map(({ name }) => name);
  const recipe = recipe_of(modulesOf(host), "modules.json", (name) => host.config(name));
  const { poolings, others } = recipe;
  const hasVector = names.includes(EMBEDDING);
  if (used && others.length && !hasVector)
    throw new InputError(
      `the model's embeddings need ${others.join(", ")}, which the graph has not`,
      host.task,
      `Export it with the output ${EMBEDDING}, or pass pooling.`,
    );
  const embeds = hasVector && (poolings.length > 0 || !STATES.some((name) => names.includes(name)));
  return { ...recipe, embeds, normalize: recipe.normalize && (embeds || poolings.length > 0) };
}

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
  encode: Parameters<typeof encodings>[3],
  ending: Ending,
): ReturnType<typeof forward> {
  const [text, pair] =
    typeof input === "object" && "text" in input
      ? [input.text, input.text_pair]
      : [needText(input, host.task), undefined];
  const [encoding] = encodings(host, text, pair, encode);
  return forward(host, encoding!, false, ending);
}

/** `pipe(texts, {top_k, function_to_apply})` */
export const textClassification: TaskRunner = {
  options: ["top_k", "function_to_apply", ...ENCODING],
  prepare(host, options) {
    const labels = labeler(host, options, 1);
    const encode = encodingOptions(options);
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
  prepare(host, options) {
    const { labels, texts } = candidates(options, "This example is {}.");
    const multi = options.flag("multi_label", false);
    const entailment = entailment_of(label2id(host));
    return async (input, ending) => {
      const sequence = needText(input, host.task);
      const rows: number[][] = [];
      for (const hypothesis of texts) {
        const [encoding] = encodings(host, sequence, hypothesis, { truncation: "only_first" });
        const outputs = await forward(host, encoding!, false, ending);
        rows.push([...row(output(host, outputs, "logits"), 0)]);
      }
      const [ordered, scores] = zero_shot(rows, labels, entailment, multi);
      return { sequence, labels: ordered, scores };
    };
  },
};

/** `label2id` of config.json, or the reverse of its `id2label`. */
function label2id(host: TaskHost): Record<string, number> {
  const { label2id: given, id2label } = host.config() as {
    label2id?: Record<string, number>;
    id2label?: Record<string, string>;
  };
  return (
    given ??
    Object.fromEntries(Object.entries(id2label ?? {}).map(([id, label]) => [label, Number(id)]))
  );
}

/** `pipe(texts, {ignore_labels, aggregation_strategy})` */
export const tokenClassification: TaskRunner = {
  options: ["ignore_labels", "aggregation_strategy"],
  prepare(host, options) {
    const ignored = options.texts("ignore_labels", ["O"])!;
    const strategy = options.choice("aggregation_strategy", "none", STRATEGIES);
    return async (input, ending) => {
      const text = needText(input, host.task);
      const tokenizer = host.needTokenizer();
      const [encoding] = encodings(host, text, undefined);
      const outputs = await forward(host, encoding!, true, ending);
      const logits = output(host, outputs, "logits");
      const unknown = tokenizer.id("unk_token");
      const prefix = marksContinuations(tokenizer);
      const scored = encoding!.flatMap((token, index): Scored[] => {
        const { id, start, end, sequence } = token;
        if (sequence === undefined) return [];
        const isUnknown = id === unknown;
        return [
          {
            word: isUnknown ? text.slice(start, end) : token.text,
            scores: softmax(row(logits, 0, index)),
            ...{ start, end, index },
            is_subword: !isUnknown && is_subword(text, token.text, start, end, prefix),
          },
        ];
      });
      const labels = labelsOf(host, logits.dims.at(-1)!);
      return entities_of(scored, labels, strategy, ignored, (tokens) => tokenizer.join(tokens));
    };
  },
};

/** `pipe(texts, {top_k, targets})` */
export const fillMask: TaskRunner = {
  options: ["top_k", "targets"],
  prepare(host, options) {
    const tokenizer = host.needTokenizer();
    const topK = options.count("top_k", 5, null) ?? 5;
    const mask = tokenizer.id("mask_token");
    if (mask === undefined)
      throw new InputError(
        "the tokenizer has no mask token",
        host.task,
        "Give a masked language model.",
      );
    const targets = options.texts("targets", undefined)?.flatMap((target) => {
      const id = tokenizer.idOf(target) ?? tokenizer.encode(target, false)[0];
      return id === undefined ? [] : [id];
    });
    const among = targets && [...new Set(targets)];
    return async (input, ending) => {
      const [encoding] = encodings(host, needText(input, host.task), undefined);
      const ids = encoding!.map((token) => token.id);
      const masked = ids.flatMap((id, i) => (id === mask ? [i] : []));
      if (!masked.length)
        throw new InputError(
          `there is no ${tokenizer.token("mask_token")} in the text`,
          host.task,
          "Put one in it.",
        );
      const logits = output(host, await forward(host, encoding!, true, ending), "logits");
      const results = masked.map((at) =>
        fill_mask(row(logits, 0, at), topK, among).map(([token, score]) => ({
          score,
          token,
          token_str: tokenizer.decode([token]),
          sequence: tokenizer.decode(
            ids.map((id, i) => (i === at ? token : id)),
            { skip_special_tokens: masked.length === 1 },
          ),
        })),
      );
      return masked.length === 1 ? results[0] : results;
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
  prepare(host, options) {
    const topK = options.count("top_k", 1, null) ?? 1;
    const room = Math.min(longest(host) ?? 384, 384);
    const most = options.count("max_seq_len", room, null) ?? room;
    const stride = options.count("doc_stride", Math.min(Math.floor(most / 2), 128), null, 0) ?? 0;
    const longestAnswer = options.count("max_answer_len", 15, null) ?? 15;
    const impossible = options.flag("handle_impossible_answer", false);
    const align = options.flag("align_to_words", true);
    const spans = align ? topK * 2 + 10 : topK;
    return async (input, ending) => {
      if (typeof input !== "object" || !("question" in input && input.question && input.context))
        throw new InputError(
          "the input is no question with a context",
          host.task,
          "Give pipe(question, context).",
        );
      const { question, context } = input;
      const parts = encodings(host, question, context, {
        ...{ truncation: "only_second", max_length: most, stride },
      });
      const cls = host.needTokenizer().id("cls_token");
      const candidates: [number, number, number][] = [];
      let none = Infinity;
      for (const encoding of parts) {
        const outputs = await forward(host, encoding, true, ending);
        const [start, end] = ["start_logits", "end_logits"].map((name) =>
          row(output(host, outputs, name), 0),
        ) as [Float32Array, Float32Array];
        const allowed = encoding.map(({ sequence, id }) => sequence === 1 || id === cls);
        const [found, score] = spans_of(start, end, allowed, spans, longestAnswer);
        none = Math.min(none, score);
        for (const [i, j, s] of found) {
          const [from, to] = answer_chars(
            encoding.map((t): [number, number] => [t.start, t.end]),
            encoding.map((t) => t.word ?? null),
            encoding.map((t) => t.sequence ?? null),
            [i, j],
            align,
          );
          candidates.push([from, to, s]);
        }
      }
      return merge_answers(candidates, context, topK, impossible ? none : null);
    };
  },
};
