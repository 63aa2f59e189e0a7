// automatic-speech-recognition with language models that hear: their prompts and options are those
// of logic/multimodal/families/transcripts.py.

import type { Configuration } from "../../../logic/generation/config.ts";
import {
  LANGUAGE,
  REFUSED,
  SPEECH,
  transcript_defaults,
  transcript_of,
  transcript_options,
  transcript_prompt,
} from "../../../logic/multimodal/families/transcripts.ts";
import type { EngineDecoder } from "../../model/decoder.ts";
import { described } from "../inputs.ts";
import { Options } from "../options.ts";
import type { Tasks } from "../runner.ts";
import { FIELD_NAMES, fieldsOf, spread } from "../seq2seq/fields.ts";
import { soundOf } from "../sound-input.ts";
import { type ReadSound, SoundCall } from "./asking.ts";

const OWN = [LANGUAGE, "skip_special_tokens", "clean_up_tokenization_spaces", "stop_sequence"];
const KNOWN = [...OWN, ...FIELD_NAMES];

class TranscriptCall extends SoundCall {
  protected override defaults(usual: Configuration, model: EngineDecoder): Configuration {
    return transcript_defaults(usual, this.fields as Record<string, unknown>, model.max_length);
  }
}

/** `pipe(sounds, {language, fields of GenerationConfig})`. read: reads a sound. */
export const transcriptsOf = (read: ReadSound): Tasks => ({
  [SPEECH]: {
    options: [...KNOWN, ...REFUSED],
    prepare(host, given, events) {
      const asked = transcript_options(spread(given.given));
      const options = new Options(asked, KNOWN);
      const fields = fieldsOf(options, OWN);
      const rule = described(host, "sounds");
      const language = options.optional(LANGUAGE) ?? null;
      const { model_type: family } = host.config();
      const text = transcript_prompt(family, rule, language);
      return async (input, ending) => {
        const sounds = [soundOf(input, SPEECH)];
        const ask = { given: text, messages: null, pictures: [{ picture: 0 }], videos: [] };
        const call = new TranscriptCall(read, host, options, fields, ask, ending);
        const from = { text, images: null, pictures: [], sounds };
        const [one] = (await call.records(from, events)) as [{ generated_text: string }];
        return { text: transcript_of(family, one.generated_text.slice(text.length)) };
      };
    },
  },
});
