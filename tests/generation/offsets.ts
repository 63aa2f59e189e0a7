// Encodes texts as a page's worker does, for test_offsets.py: {files, texts, pairs} on stdin, for
// each file [[ids, offsets, words, type ids] of each text, of each pair] on stdout.

import { readFileSync } from "node:fs";
import type { EncodeOptions } from "../../web/src/logic/text/encoding.ts";
import { encodingsOf } from "../../web/src/worker/text/encoding.ts";
import { Tokenizer } from "../../web/src/worker/text/tokenizer.ts";

const { files, texts, pairs } = JSON.parse(readFileSync(0, "utf8")) as {
  files: Record<string, string>;
  texts: string[];
  pairs: [string, string, Partial<EncodeOptions>][];
};
const plain = (tokenizer: Tokenizer, text: string, pair?: string, options = {}) =>
  encodingsOf(tokenizer, text, pair ?? null, options).map((one) => [
    ...[one.ids, one.offsets, one.words, one.type_ids],
  ]);
const answers = Object.entries(files).map(([name, file]) => {
  const tokenizer = new Tokenizer(file, "{}", undefined, name);
  return [
    name,
    [
      texts.map((text) => plain(tokenizer, text)[0]),
      pairs.map(([text, pair, options]) => {
        try {
          return plain(tokenizer, text, pair, options);
        } catch (e) {
          return (e as Error).name;
        }
      }),
    ],
  ];
});
console.log(JSON.stringify(Object.fromEntries(answers)));
