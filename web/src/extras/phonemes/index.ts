/**
 * Phonemes of English texts, for voices that read them: Piper's, Kokoro, some of VITS.
 *
 * ```js
 * import { pipeline } from "edgewise";
 * import { englishPhonemizer } from "edgewise/phonemes";
 * const lexicon = await (await fetch("lexicon.txt")).text();
 * const speak = await pipeline("text-to-speech", "en_US-joe-medium.edge");
 * await speak("Good morning.", { phonemizer: englishPhonemizer(lexicon) });
 * ```
 * @module
 */

import { type Alphabet, English } from "../../logic/speech/english.ts";

export { EdgewiseError, InputError } from "../../shared/errors.ts";

/** Options of {@link englishPhonemizer}. */
export interface PhonemizerOptions {
  /** `"espeak"` for Piper's voices and VITS, `"kokoro"` for Kokoro. Default: `"espeak"`. */
  alphabet?: Alphabet;
}

/**
 * A function that makes phonemes of English texts, for the option `phonemizer` of text-to-speech.
 * Words that are not in the lexicon are made of their parts or letters. Numbers, amounts of money
 * and times become words.
 *
 * @param lexicon lines `word TAB phonemes`, words in small letters, phonemes in IPA as espeak-ng
 *   writes them, a mark of stress before its vowel. Default: about a hundred common words
 * @throws InputError if a line has no tab, or the alphabet is not known
 */
export function englishPhonemizer(
  lexicon = "",
  { alphabet = "espeak" }: PhonemizerOptions = {},
): (text: string) => string {
  const english = new English(lexicon, alphabet);
  return (text) => english.phonemes(text);
}
