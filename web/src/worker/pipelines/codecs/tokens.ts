// Speech by language models: the rules of logic/speech/audio_tokens.py beside a codec.

import {
  check_fit,
  Frames,
  fields_of,
  KNOWN,
  type Piece,
  Pieces,
  prompt_parts,
  rule_of,
  type TokenRule,
  token_of,
} from "../../../logic/speech/audio_tokens.ts";
import type { TaskTensor } from "../../../protocol/tasks.ts";
import { InputError } from "../../../shared/errors.ts";
import type { Json } from "../../../shared/python/types.ts";

type Given = Record<string, unknown>;
/** Decodes tensors of codes. */
type Decode = (codes: TaskTensor[], seed: unknown) => Promise<TaskTensor>;

const tensor = (rows: readonly (readonly number[])[]): TaskTensor => ({
  type: "int64",
  dims: [rows.length, rows[0]!.length],
  data: new Uint8Array(BigInt64Array.from(rows.flat(), BigInt).buffer),
});

/** The language model of a codec: its rule, and the frames of the speech that is being written. */
export class Speaking {
  private rule: TokenRule | undefined;
  private frames: Frames | undefined;
  private pieces = new Pieces();
  private count = 0;

  constructor(private readonly fit: { streams: number; books: number; size: number }) {}

  /** Tokens that a vocabulary is asked for: it has one of these lists, or none. */
  probes(): Given {
    return {
      probes: KNOWN.map((rule) => [
        token_of(rule, 0, 0),
        token_of(rule, rule.columns.length - 1, 0),
      ]),
    };
  }

  /** Chooses the rule; gives its tokens that the vocabulary must have, and those at the end. */
  choose({ audio_tokens, known }: Given): Given {
    const rule = rule_of((audio_tokens ?? null) as never, known as boolean[]);
    check_fit(rule, this.fit.streams, this.fit.books, this.fit.size);
    this.rule = rule;
    const needs = rule.columns.map((_, i) => token_of(rule, i, 0));
    return { needs, end: rule.end };
  }

  /** Begins to speak: the parts of the prompt, and fields of GenerationConfig. */
  start({ text, voice, fields }: Given): Given {
    const rule = this.rule!;
    this.frames = new Frames(rule);
    this.pieces = new Pieces();
    this.count = 0;
    const parts = prompt_parts(rule, text as string, (voice ?? null) as never);
    return { parts, fields: fields_of(rule, (fields ?? {}) as Json) };
  }

  /**
   * Takes tokens, and gives the sound that they complete.
   * @throws InputError if these are the last ones, and there was no whole frame
   */
  async take({ texts, over, whole, seed }: Given, decode: Decode): Promise<Given> {
    const frames = this.frames!;
    for (const text of texts as string[]) {
      this.count++;
      frames.feed(text);
    }
    if (over && !frames.count)
      throw new InputError(
        `the model wrote ${this.count} tokens, and no whole frame of sound among them`,
        "text-to-speech",
        "Check that the model, its prompt (voice) and audio_tokens belong together.",
      );
    const sounds: Float32Array[] = [];
    if (whole) {
      const { count } = frames;
      if (over)
        sounds.push(await this.sound({ start: 0, count, first: 0, last: count }, seed, decode));
      return { sounds };
    }
    for (;;) {
      const piece = this.pieces.next(frames.count, over === true);
      if (!piece) return { sounds };
      sounds.push(await this.sound(piece, seed, decode));
    }
  }

  private async sound(
    { start, count, first, last }: Piece,
    seed: unknown,
    decode: Decode,
  ): Promise<Float32Array> {
    const codes = this.frames!.codes(start, count);
    const tensors = this.fit.streams > 1 ? codes.map((of) => tensor([of])) : [tensor(codes)];
    const { dims, data } = await decode(tensors, seed);
    const samples = new Float32Array(data.buffer, data.byteOffset, data.byteLength / 4);
    const per = dims.at(-1)! / count;
    return samples.slice(Math.round(first * per), Math.round(last * per));
  }
}
