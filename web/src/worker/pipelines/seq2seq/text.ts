// Text to text: translation, summarization and others. Options and languages are those of
// logic/generation/text2text.py.

import {
  type Call,
  call_of,
  LANGUAGES,
  OPTIONS,
  prompt_of,
  special_tokens,
} from "../../../logic/generation/text2text.ts";
import { end_id, target_example, target_ids } from "../../../logic/training/targets.ts";
import type { GenerationFields } from "../../../protocol/generation.ts";
import { InputError } from "../../../shared/errors.ts";
import { DecodingStreamer, type GenerateOutput, generate } from "../../generation/index.ts";
import type { Ending, TaskHost } from "../host.ts";
import { Options } from "../options.ts";
import type { Events, TaskRunner } from "../runner.ts";
import { FIELD_NAMES, fieldsOf, spread, startIds } from "./fields.ts";

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
      const call = call_of(options.given, truncates, host.config(), languagesOf(host));
      return async (input, ending) => {
        if (typeof input !== "string")
          throw new InputError(
            "the input is no text",
            host.task,
            "Give a text or a list of texts.",
          );
        const { sequences } = await generated(host, call, fields, input, events, ending);
        return sequences.map((ids) =>
          call.tensors
            ? { [`${name}_token_ids`]: ids }
            : { [`${name}_text`]: host.needTokenizer().decode(ids, call.decoding) },
        );
      };
    },
    pairs: {
      kind: "text",
      prepare(host, given) {
        const options = new Options(spread(given), known);
        const call = call_of(options.given, truncates, host.config(), languagesOf(host));
        return async ({ source, target }) => {
          const model = host.needSeq2Seq();
          const tokenizer = host.needTokenizer();
          const states = await model.hidden(sourceOf(host, call, String(source)));
          const end = end_id(model.generation_config, model.config);
          const ids = target_ids(tokenizer.encode(target), call.forced, call.languages);
          return { example: target_example(startIds(model), ids, end), states };
        };
      },
    },
  };
}

/** The ids of a text for the encoder. */
function sourceOf(host: TaskHost, call: Call, text: string): number[] {
  const { eos_token_id: eos } = host.config("generation_config.json");
  const ids = host.needTokenizer().encode(call.prefix + text);
  return prompt_of(call, ids, host.needSeq2Seq().longest, eos);
}

async function generated(
  host: TaskHost,
  call: Call,
  fields: GenerationFields,
  text: string,
  events: Events,
  signal: Ending,
): Promise<GenerateOutput> {
  const model = host.needSeq2Seq();
  const tokenizer = host.needTokenizer();
  const forced = call.forced === null ? {} : { forced_bos_token_id: call.forced };
  const source = model.encodeIds(sourceOf(host, call, text));
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

/** Ids of the tokenizer's further special tokens, among them those of languages. */
function languagesOf(host: TaskHost): Record<string, number> {
  const names = special_tokens(host.config("tokenizer_config.json"));
  const ids = names.map((name) => [name, host.tokenizer?.idOf(name)] as const);
  return Object.fromEntries(ids.filter(([, id]) => id !== undefined)) as Record<string, number>;
}

/** `pipe(texts, {truncation, prefix, fields of GenerationConfig})` */
export const TEXT_TASKS: Readonly<Record<string, TaskRunner>> = {
  "text2text-generation": textTask("generated", false, OPTIONS),
  summarization: textTask("summary", true, OPTIONS),
  translation: textTask("translation", false, [...OPTIONS, ...LANGUAGES]),
};
