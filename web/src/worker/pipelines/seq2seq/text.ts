// Text to text: translation, summarization and others. Mirrors
// python/edgewise/host/pipelines/text2text.py.

import { truncated } from "../../../logic/generation/arguments.ts";
import type { GenerationFields } from "../../../protocol/generation.ts";
import type { TaskInput } from "../../../protocol/tasks.ts";
import { InputError } from "../../../shared/errors.ts";
import { DecodingStreamer, type GenerateOutput, generate } from "../../generation/index.ts";
import type { Ending, TaskHost } from "../host.ts";
import { Options } from "../options.ts";
import type { Events, TaskRunner } from "../runner.ts";
import { FIELD_NAMES, fieldsOf, spread, startIds } from "./fields.ts";

const OWN = [
  "return_tensors",
  "return_text",
  "clean_up_tokenization_spaces",
  "truncation",
  "prefix",
];
const LANGUAGES = ["src_lang", "tgt_lang"];

/** What a call needs to know. */
interface Call {
  host: TaskHost;
  options: Options;
  fields: GenerationFields;
  /** Ids of the special tokens that stand for languages, by their names. */
  languages: ReadonlyMap<string, number>;
}

/** A task whose result is `{[name]: text}`. */
function textTask(name: string, truncates: boolean, own: readonly string[]): TaskRunner {
  const known = [...own, ...FIELD_NAMES];
  return {
    options: known,
    prepare(host, given, events) {
      const options = new Options(spread(given.given), known);
      const fields = fieldsOf(options, own);
      const several = (fields.num_return_sequences ?? 1) > 1 || (fields.num_beams ?? 1) > 1;
      if (events.streams && several)
        throw new InputError(
          "a streamer can follow one text only",
          "options.streamer",
          "Leave num_beams and num_return_sequences at 1, or generate without a streamer.",
        );
      const tensors = options.flag("return_tensors", false);
      if (tensors && options.has("return_text") && options.flag("return_text", true))
        throw new InputError(
          "return_text excludes return_tensors",
          "options.return_text",
          "Give one.",
        );
      const cut = options.flag("truncation", truncates);
      const call = { host, options, fields, languages: languagesOf(host) };
      const clean = options.has("clean_up_tokenization_spaces")
        ? {
            clean_up_tokenization_spaces: options.flag("clean_up_tokenization_spaces", false),
          }
        : {};
      const decoding = { skip_special_tokens: true, ...clean };
      return async (input, ending) => {
        const made = await generated(call, promptOf(call, input, cut), events, ending);
        return made.sequences.map((ids) =>
          tensors
            ? { [`${name}_token_ids`]: ids }
            : { [`${name}_text`]: host.needTokenizer().decode(ids, decoding) },
        );
      };
    },
  };
}

async function generated(
  { host, options, fields, languages }: Call,
  ids: number[],
  events: Events,
  signal: Ending,
): Promise<GenerateOutput> {
  const model = host.needSeq2Seq();
  const target = options.optional("tgt_lang");
  const forced =
    target !== undefined && !pairOf(host, options)
      ? { forced_bos_token_id: languageId(languages, target, "tgt_lang") }
      : {};
  const source = model.encodeIds(ids);
  const tokenizer = host.needTokenizer();
  const streamer = new DecodingStreamer(tokenizer, {
    skip_prompt: true,
    callback_function: (text) => events.text(text, false),
  });
  try {
    return (await generate(
      source,
      startIds(model),
      {},
      {
        fields: { ...fields, ...forced, return_dict_in_generate: true },
        ...(events.streams ? { streamer } : {}),
        signal,
        tokenizer,
      },
    )) as GenerateOutput;
  } finally {
    source.close();
    if (events.streams) events.text("", true);
  }
}

/** The ids of a text for the encoder. */
function promptOf({ host, options, languages }: Call, input: TaskInput, cut: boolean): number[] {
  if (typeof input !== "string")
    throw new InputError("the input is no text", host.task, "Give a text or a list of texts.");
  const { prefix: own } = host.config();
  const prefix =
    options.optional("prefix") ?? pairOf(host, options)?.prefix ?? (own as string | null) ?? "";
  let ids = host.needTokenizer().encode(prefix + input);
  const source = options.optional("src_lang");
  if (source !== undefined && pairOf(host, options)?.prefix === undefined) {
    const known = new Set(languages.values());
    ids = [languageId(languages, source, "src_lang"), ...ids.filter((id) => !known.has(id))];
  }
  const most = host.needSeq2Seq().longest;
  const { eos_token_id: eos } = host.config("generation_config.json");
  return cut ? truncated(ids, most, eos) : ids;
}

/** What T5's config says of a pair of languages. */
function pairOf(host: TaskHost, options: Options): { prefix?: string } | undefined {
  const [from, to] = [options.optional("src_lang"), options.optional("tgt_lang")];
  const params = host.config().task_specific_params as
    | Record<string, { prefix?: string }>
    | null
    | undefined;
  return params?.[`translation_${from}_to_${to}`];
}

/** The tokenizer's further special tokens, among them those of languages. */
function languagesOf(host: TaskHost): Map<string, number> {
  const { additional_special_tokens: found } = host.config("tokenizer_config.json");
  const ids = new Map<string, number>();
  for (const token of Array.isArray(found) ? found : []) {
    const name = typeof token === "string" ? token : String(token?.content ?? "");
    const id = host.tokenizer?.idOf(name);
    if (id !== undefined) ids.set(name, id);
  }
  return ids;
}

function languageId(ids: ReadonlyMap<string, number>, name: string, option: string): number {
  for (const form of [name, `__${name}__`, `${name}_XX`]) {
    const id = ids.get(form);
    if (id !== undefined) return id;
  }
  throw new InputError(
    `the model has no language '${name}'`,
    `options.${option}`,
    "Give a token of the model's tokenizer; models for one pair have no such option.",
  );
}

/** `pipe(texts, {truncation, prefix, fields of GenerationConfig})` */
export const TEXT_TASKS: Readonly<Record<string, TaskRunner>> = {
  "text2text-generation": textTask("generated", false, OWN),
  summarization: textTask("summary", true, OWN),
  translation: textTask("translation", false, [...OWN, ...LANGUAGES]),
};
