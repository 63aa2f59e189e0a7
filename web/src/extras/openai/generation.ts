// What a pipeline does for a request for text.

import { finish_of, type Piece, type TokenScore, type Usage } from "../../logic/openai/answers.ts";
import { check_length, type Generation } from "../../logic/openai/requests.ts";
import { StopText } from "../../logic/openai/stops.ts";
import type { TextGenerationPipeline } from "../../page/text-generation.ts";
import type { Message } from "../../protocol/generation.ts";
import { Queue } from "../../shared/queue.ts";

/** New tokens of a sequence, unless the context ends before. */
const MAX_TOKENS = 1 << 30;

/** The pieces of all sequences, one sequence after the other, and the counts of tokens. */
export async function* generate(
  pipe: TextGenerationPipeline,
  request: Generation,
  signal: AbortSignal | undefined,
): AsyncGenerator<Piece | Usage, void, undefined> {
  const counts: Usage = { prompt: 0, completion: 0, cached: 0, kind: "usage" };
  const { n, prompts, fields } = request;
  const { seed } = fields as { seed?: number };
  for (const [p, prompt] of prompts.entries()) {
    const ids = await idsOf(pipe, request, prompt);
    check_length(ids.length, pipe.info.capacity, request);
    counts.prompt += ids.length;
    for (let i = 0; i < n; i++) {
      // sequences of one prompt differ
      const more = seed === undefined ? {} : { seed: seed + i };
      const one = sequence(pipe, request, ids, p * n + i, more, signal);
      const made = yield* one;
      counts.completion += made.completion;
      if (i === 0) counts.cached += made.cached;
    }
  }
  yield counts;
}

async function idsOf(
  { tokenizer }: TextGenerationPipeline,
  { chat, continues }: Generation,
  prompt: string | number[] | Message[],
): Promise<number[]> {
  if (typeof prompt === "string") return tokenizer.encode(prompt);
  if (!chat) return prompt as number[];
  return tokenizer.apply_chat_template(prompt as Message[], {
    add_generation_prompt: !continues,
    continue_final_message: continues,
    tokenize: true,
  });
}

async function* sequence(
  pipe: TextGenerationPipeline,
  request: Generation,
  input_ids: number[],
  index: number,
  fields: Record<string, unknown>,
  signal: AbortSignal | undefined,
): AsyncGenerator<Piece, { completion: number; cached: number }, undefined> {
  const { logprobs, max_tokens } = request;
  const stop = new StopText(request.stop);
  const room = pipe.info.capacity - input_ids.length;
  const scores: TokenScore[] = [];
  const texts = new Queue<string>();
  const end = new AbortController();
  const work = pipe(
    { input_ids },
    {
      ...request.fields,
      ...fields,
      max_new_tokens: Math.min(max_tokens ?? MAX_TOKENS, room),
      ...(request.stop.length ? { stop_strings: request.stop } : {}),
      ...(logprobs === null
        ? {}
        : { logprobs, onScores: (more: TokenScore[]) => scores.push(...more) }),
      return_dict_in_generate: true,
      streamer: (text: string) => texts.put(text),
      signal: signal ? AbortSignal.any([signal, end.signal]) : end.signal,
    },
  ).finally(() => texts.end());
  work.catch(() => undefined); // it is thrown below
  const taken = () => scores.splice(0);
  try {
    for await (const text of texts) {
      const told = stop.push(text);
      if (told) yield { index, text: told, finish: null, scores: taken(), kind: "piece" };
    }
    const [{ finish_reasons } = {}] = await work;
    const rest = stop.stopped ? "" : stop.end();
    const finish = finish_of(finish_reasons ?? "", stop.stopped);
    yield { index, text: rest, finish, scores: taken(), kind: "piece" };
    const { new_tokens: completion, cached_tokens: cached } = pipe.stats!;
    return { completion, cached };
  } finally {
    end.abort(); // the reader has left
  }
}
