// What a pipeline does for a request for text.

import {
  type Event,
  finish_of,
  Parts,
  type Piece,
  type TokenScore,
  type Usage,
} from "../../logic/openai/answers.ts";
import { check_length, type Generation } from "../../logic/openai/requests.ts";
import { StopText } from "../../logic/openai/stops.ts";
import type {
  GenerateOptions,
  MessageDelta,
  TextGenerationOutput,
  TextGenerationPipeline,
} from "../../page/text-generation.ts";
import type { Message, Prompt, TextOptions, ToolDefinition } from "../../protocol/generation.ts";
import { Queue } from "../../shared/queue.ts";

/** New tokens of a sequence, unless the context ends before. */
const MAX_TOKENS = 1 << 30;

/** The pieces of all sequences, one sequence after the other, and the counts of tokens. */
export async function* generate(
  pipe: TextGenerationPipeline,
  request: Generation,
  signal: AbortSignal | undefined,
): AsyncGenerator<Event, void, undefined> {
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
      const of = request.tools ? withTools : sequence;
      const one = of(pipe, request, ids, p * n + i, more, signal);
      const made = yield* one;
      counts.completion += made.completion;
      if (i === 0) counts.cached += made.cached;
    }
  }
  yield counts;
}

async function idsOf(
  { tokenizer }: TextGenerationPipeline,
  { chat, continues, tools }: Generation,
  prompt: string | number[] | Message[],
): Promise<number[]> {
  if (typeof prompt === "string") return tokenizer.encode(prompt);
  if (!chat) return prompt as number[];
  return tokenizer.apply_chat_template(prompt as Message[], {
    add_generation_prompt: !continues,
    continue_final_message: continues,
    ...(tools ? { tools } : {}),
    tokenize: true,
  });
}

type Counts = { completion: number; cached: number };

async function* sequence(
  pipe: TextGenerationPipeline,
  request: Generation,
  input_ids: number[],
  index: number,
  fields: Record<string, unknown>,
  signal: AbortSignal | undefined,
): AsyncGenerator<Event, Counts, undefined> {
  const stop = new StopText(request.stop);
  const run = new Run<string>(pipe, request, input_ids.length, fields, signal);
  try {
    const texts = run.begin({ input_ids }, { streamer: (text: string) => run.news.put(text) });
    for await (const text of texts) {
      const told = stop.push(text);
      if (told) yield { index, text: told, finish: null, scores: run.scores(), kind: "piece" };
    }
    const reason = await run.reason();
    const rest = stop.stopped ? "" : stop.end();
    const finish = finish_of(reason, stop.stopped);
    yield { index, text: rest, finish, scores: run.scores(), kind: "piece" } satisfies Piece;
    return run.counts();
  } finally {
    run.end(); // the reader has left
  }
}

async function* withTools(
  pipe: TextGenerationPipeline,
  request: Generation,
  input_ids: number[],
  index: number,
  fields: Record<string, unknown>,
  signal: AbortSignal | undefined,
): AsyncGenerator<Event, Counts, undefined> {
  const { continues, parallel, prompts, tool_choice, tools } = request;
  const parts = new Parts(index, request.stop);
  const run = new Run<MessageDelta>(pipe, request, input_ids.length, fields, signal);
  try {
    const deltas = run.begin(prompts[0] as Message[], {
      tools: tools as unknown as ToolDefinition[],
      tool_choice: tool_choice as TextOptions["tool_choice"],
      parallel_tool_calls: parallel,
      continue_final_message: continues,
      on_delta: (delta) => run.news.put(delta),
    });
    for await (const delta of deltas) yield* parts.push({ ...delta }, run.scores());
    yield parts.end(await run.reason(), run.scores());
    return run.counts();
  } finally {
    run.end();
  }
}

/** A call of a pipeline whose news are read as they come. */
class Run<T> {
  readonly news = new Queue<T>();
  private readonly found: TokenScore[] = [];
  private readonly leave = new AbortController();
  private work: Promise<TextGenerationOutput[]> = Promise.resolve([]);

  constructor(
    private readonly pipe: TextGenerationPipeline,
    private readonly request: Generation,
    private readonly prompt: number,
    private readonly fields: Record<string, unknown>,
    private readonly signal: AbortSignal | undefined,
  ) {}

  begin(input: Message[] | Prompt, options: GenerateOptions): Queue<T> {
    const { pipe, request, signal, leave } = this;
    const { logprobs, max_tokens, stop } = request;
    const room = pipe.info.capacity - this.prompt;
    this.work = pipe(input, {
      ...request.fields,
      ...this.fields,
      ...options,
      max_new_tokens: Math.min(max_tokens ?? MAX_TOKENS, room),
      ...(stop.length ? { stop_strings: stop } : {}),
      ...(logprobs === null
        ? {}
        : { logprobs, onScores: (more: TokenScore[]) => this.found.push(...more) }),
      return_dict_in_generate: true,
      signal: signal ? AbortSignal.any([signal, leave.signal]) : leave.signal,
    }).finally(() => this.news.end());
    this.work.catch(() => undefined); // it is thrown by `reason`
    return this.news;
  }

  /** The scores of the tokens since the last call. */
  scores(): TokenScore[] {
    return this.found.splice(0);
  }

  /** Why it ended. Throws what the call throws. */
  async reason(): Promise<string> {
    const [{ finish_reasons } = { finish_reasons: "" }] = await this.work;
    return finish_reasons ?? "";
  }

  counts(): Counts {
    const { new_tokens: completion, cached_tokens: cached } = this.pipe.stats!;
    return { completion, cached };
  }

  end(): void {
    this.leave.abort();
  }
}
