// Words of tokens. Mirrors python/edgewise/logic/speech/words.py.

/** From ids to text. */
export type Decode = (ids: number[]) => string;

const PREPENDED = "\"'“¡¿([{-";
const APPENDED = "\"'.。,，!！?？:：”)]}、";
const PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
const WITHOUT_SPACES = ["chinese", "japanese", "thai", "lao", "myanmar", "cantonese"];
const BROKEN = "\ufffd";

interface Word {
  text: string;
  /** Indices of its tokens. */
  at: number[];
}

/**
 * Groups tokens into words.
 * @param eos id of the first special token
 * @param language name; null: one that has spaces between words
 * @returns words with the spaces before them, for each the indices of its tokens
 */
export function wordsOf(
  tokens: readonly number[],
  decode: Decode,
  eos: number,
  language: string | null,
): [string[], number[][]] {
  let words = byCharacter(tokens, decode);
  if (!WITHOUT_SPACES.includes(language ?? "")) words = bySpace(words, tokens, eos);
  merge(words);
  const kept = words.filter(({ text }) => text);
  return [kept.map(({ text }) => text), kept.map(({ at }) => at)];
}

/** Splits wherever tokens decode to whole characters. */
function byCharacter(tokens: readonly number[], decode: Decode): Word[] {
  const whole = [...decode([...tokens])];
  const words: Word[] = [];
  let current: number[] = [];
  let offset = 0;
  tokens.forEach((_, i) => {
    current.push(i);
    const text = decode(current.map((j) => tokens[j]!));
    const characters = [...text]; // code points, as in Python
    const broken = characters.indexOf(BROKEN);
    if (broken >= 0 && whole[offset + broken] !== BROKEN) return;
    words.push({ text, at: current });
    current = [];
    offset += characters.length;
  });
  return words;
}

/** Joins parts up to the next space or punctuation. */
function bySpace(parts: Word[], tokens: readonly number[], eos: number): Word[] {
  const words: Word[] = [];
  for (const { text, at } of parts) {
    const alone = PUNCTUATION.includes(text.trim());
    if (tokens[at[0]!]! >= eos || text.startsWith(" ") || alone || !words.length)
      words.push({ text, at: [...at] });
    else {
      const last = words.at(-1)!;
      last.text += text;
      last.at.push(...at);
    }
  }
  return words;
}

/** Merges punctuation into the word behind or before it; what is merged becomes empty. */
function merge(words: Word[]): void {
  const join = (a: Word, b: Word): Word => ({ text: a.text + b.text, at: [...a.at, ...b.at] });
  const none = (): Word => ({ text: "", at: [] });
  for (let i = words.length - 2, j = words.length - 1; i >= 0; i--) {
    if (words[i]!.text.startsWith(" ") && PREPENDED.includes(words[i]!.text.trim())) {
      words[j] = join(words[i]!, words[j]!);
      words[i] = none();
    } else j = i;
  }
  for (let i = 0, j = 1; j < words.length; j++) {
    if (!words[i]!.text.endsWith(" ") && APPENDED.includes(words[j]!.text)) {
      words[i] = join(words[i]!, words[j]!);
      words[j] = none();
    } else i = j;
  }
}
