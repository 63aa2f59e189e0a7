// Formats of generated text: a part of its own, loaded by the first call with `response_format`.

import type { Format } from "../../logic/generation/requests.ts";
import { Formats } from "../../logic/grammar/constraint.ts";
import { alphabet_of } from "../../logic/grammar/vocabulary.ts";
import type { Model } from "../model/model.ts";

export { is_json, ParsedText, parsed } from "../../logic/grammar/partial.ts";
export { check_given } from "../../logic/tools/choice.ts";

const kept = new WeakMap<object, Formats>();

/**
 * What the texts of a call have to be; null: anything.
 * @throws InputError, UnsupportedField
 */
export function formatOf(
  { decoder, tokenizer }: Pick<Model, "decoder" | "tokenizer">,
  given: unknown,
): Format | null {
  const { engine } = decoder; // another one, after a GPU was lost
  let formats = kept.get(decoder);
  if (formats?.engine !== engine) {
    const alphabet = alphabet_of(tokenizer.json);
    formats = new Formats(engine, decoder.vocab_size, alphabet, (id) => tokenizer.tokenOf(id));
    kept.set(decoder, formats);
  }
  return formats.format(given);
}
