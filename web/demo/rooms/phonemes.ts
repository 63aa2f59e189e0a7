// The sounds of English words, for voices that read them: by a lexicon, else by letters.

import type { TextToSpeechPipeline } from "edgewise";
import { englishPhonemizer } from "edgewise/phonemes";
import { textAtHand } from "../models.ts";
import { addressOf, keepMade, madeModels } from "./real.ts";

let lexicon = "";

/** Said where there is none. */
export const NO_LEXICON = "There is no lexicon: words are read by their letters, less well.";

/**
 * Takes the lexicon that was made with the page, unless there is one, and keeps it.
 * @returns whether there is one
 */
export async function readLexicon(): Promise<boolean> {
  if (lexicon) return true;
  const [made] = await madeModels("lexicon");
  const found = made && (await textAtHand(addressOf(made)).catch(() => undefined));
  if (!found) return false;
  lexicon ||= found;
  void keepMade([made.file]);
  return true;
}

/**
 * Takes another lexicon.
 * @throws InputError if it is none
 * @returns the number of its words
 */
export function useLexicon(text: string): number {
  englishPhonemizer(text);
  lexicon = text;
  return text.split("\n").filter(Boolean).length;
}

/**
 * The phonemizer of a voice, for which a sentence of other signs alone is a silence; undefined: the
 * voice reads letters.
 */
export function phonemizerOf({
  info,
}: TextToSpeechPipeline): ((text: string) => string) | undefined {
  const type = info.speech?.type;
  if (!type || type === "vits") return undefined;
  const made = englishPhonemizer(lexicon, { alphabet: type === "kokoro" ? "kokoro" : "espeak" });
  return (text) => made(text) || ".";
}
