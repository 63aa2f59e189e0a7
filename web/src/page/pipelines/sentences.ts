// Sentences of texts, as python/edgewise/host/pipelines/speech/sentences.py.

// The end of a sentence: a full stop and what closes quotations, before a space; or a line break.
// After the full stops of Chinese and Japanese there is no space.
const END = /[.!?…]+["'”’)\]]*(?=\s)|[。！？]+[」』”’]*|\n/g;
// What ends with a full stop and is no sentence.
const SHORT = /(?:^|[\s("“])(?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|etc|e\.g|i\.e|No|[A-Z])\.$/;

/** The sentences of a text, without spaces at their ends. */
export function* sentences(text: string): Generator<string> {
  let start = 0;
  for (const found of text.matchAll(END)) {
    const end = found.index + found[0].length;
    const sentence = text.slice(start, end);
    if (SHORT.test(sentence)) continue;
    if (sentence.trim()) yield sentence.trim();
    start = end;
  }
  const rest = text.slice(start).trim();
  if (rest) yield rest;
}
