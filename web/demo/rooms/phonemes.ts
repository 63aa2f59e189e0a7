// The sounds of English words, for voices that read them: by a lexicon, else by letters.

import type { TextToSpeechPipeline } from "edgewise";
import { englishPhonemizer } from "edgewise/phonemes";
import { addressOf, madeModels } from "./real.ts";

let lexicon = "";
let asked: Promise<void> | undefined;

/** Takes the lexicon that was made with the page, if there is one. */
export function readLexicon(): Promise<void> {
  asked ??= (async () => {
    const [made] = await madeModels("lexicon");
    const found = made && (await fetch(addressOf(made)).catch(() => undefined));
    if (found?.ok) lexicon ||= await found.text();
  })();
  return asked;
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
