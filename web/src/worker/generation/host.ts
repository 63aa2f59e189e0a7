// A decoder of this worker, as logic/generation's host.

import type { Host as Engine } from "../../device/device.ts";
import type { Tail } from "../../logic/generation/chunks.ts";
import type { Kept, Taken } from "../../logic/generation/kept.ts";
import type {
  Criterion,
  Format,
  Forward,
  Host,
  Logits,
  Processor,
  Request,
  Verify,
} from "../../logic/generation/requests.ts";
import { Pace } from "../../logic/generation/speculation.ts";
import { pace } from "../../shared/share.ts";
import type { Choosing, Decoder, GenerationOptions } from "./types.ts";

const listed = <T>(value: T | T[] | undefined): T[] =>
  value === undefined ? [] : Array.isArray(value) ? value : [value];

/** Milliseconds between two turns of the event loop, in which an abort is noticed. */
const PATIENCE = 8;

/** A decoder, and the caller of a generation. */
export class GenerationHost<S> implements Host {
  readonly engine: Engine;
  readonly vocab_size: number;
  readonly max_length: number;
  readonly piece: number | null;
  readonly tail: Tail | null;
  readonly encoder_ids: readonly number[] | null;
  readonly streams: boolean;
  readonly scores: boolean;
  readonly criteria: Criterion[];
  readonly processors: Processor[];
  readonly verified: number;
  readonly pace: Pace;
  /** Address of this generation's own logits of several tokens; 0: there are none. */
  private rows = 0;
  private readonly kept: Kept | undefined;
  readonly format: Format | null;
  readonly assistant: GenerationHost<unknown> | null;

  constructor(
    private readonly decoder: Decoder<S>,
    private readonly options: GenerationOptions = {},
  ) {
    this.engine = decoder.engine;
    this.vocab_size = decoder.vocab_size;
    this.max_length = decoder.max_length;
    this.piece = decoder.prefill_chunk ?? null;
    this.tail = decoder.tail ?? null;
    this.encoder_ids = decoder.encoder_input_ids ?? null;
    this.kept = options.cache ? decoder.kept : undefined;
    this.streams = options.streamer !== undefined;
    this.scores = decoder.scored !== undefined;
    this.verified = decoder.verified ?? 0;
    this.pace = decoder.pace ?? new Pace();
    this.criteria = listed(options.stopping_criteria);
    this.processors = listed(options.logits_processor);
    this.format = options.format ?? null;
    const { assistant_model: small, cache = false } = options;
    this.assistant = small ? new GenerationHost(small, { cache }) : null;
  }

  /** What logic returns, with turns of the event loop between its steps. */
  async run<T>(steps: Generator<Request, T, unknown>): Promise<T> {
    let last = performance.now();
    try {
      let step = steps.next();
      while (!step.done) {
        const request = step.value;
        if (request.kind !== "step") {
          let logits: Logits;
          try {
            logits = await (request.kind === "verify"
              ? this.verify(request)
              : ((request.drafts && this.assistant) || this).forward(request));
          } catch (e) {
            step = steps.throw(e);
            continue;
          }
          step = steps.next(logits);
        } else {
          if (performance.now() - last > PATIENCE) {
            await pace.breathe();
            last = performance.now();
          }
          step = steps.next();
        }
      }
      return step.value;
    } finally {
      steps.return(undefined as never);
      if (this.rows) this.engine.free(this.rows);
      this.rows = 0;
    }
  }

  private forward({ sequence, ids, room, choosing }: Forward): Promise<Logits> {
    return choosing
      ? this.decoder.forwardBest!(sequence, ids, choosing, room)
      : this.decoder.forward(sequence, ids);
  }

  private async verify({ sequence, ids }: Verify): Promise<number> {
    const { engine, vocab_size: size } = this;
    const found = await this.decoder.verify!(sequence, ids);
    this.rows ||= engine.alloc(4 * size * this.verified);
    const count = size * ids.length;
    // other generations run between the steps of this one
    engine.floats(this.rows, count).set(engine.floats(found, count));
    return this.rows;
  }

  open(): S {
    return this.decoder.open();
  }

  close(sequence: S): void {
    this.decoder.close(sequence);
  }

  copy(source: S, target: S): void {
    this.decoder.copy(source, target);
  }

  truncate(sequence: S, n: number): void {
    this.decoder.truncate(sequence, n);
  }

  take(prompt: number[]): Taken | null {
    return this.kept?.take(this.decoder.key!(), prompt) ?? null;
  }

  mark(taken: Taken, length: number, last: boolean): void {
    this.kept?.mark(taken, length, last);
  }

  give(taken: Taken, ids: number[], following: number[]): void {
    this.kept?.give(taken, ids, following, this.decoder.key!());
  }

  choosing(members: Readonly<Record<string, number>>, work: number): Choosing | null {
    return this.decoder.choosing?.(members, work) ?? null;
  }

  scored(work: number, token: number): void {
    this.decoder.scored?.(work, token);
  }

  aborted(): boolean {
    return this.options.signal?.aborted ?? false;
  }

  now(): number {
    return performance.now() / 1000;
  }

  put(ids: number[]): void {
    this.options.streamer?.put(ids);
  }

  end(): void {
    this.options.streamer?.end();
  }
}
