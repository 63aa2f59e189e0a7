// The side of a hybrid in this page: a text-generation pipeline that is loaded when it is needed.

import type { Message } from "../../protocol/generation.ts";
import { aborted } from "../../shared/abort.ts";
import { continued, type Piece, type Side, type Task } from "./side.ts";

/** What a hybrid needs of a text-generation pipeline. */
export interface Writer {
  (input: string | Message[], options?: Record<string, unknown>): Promise<unknown>;
  readonly stats?: { new_tokens: number; prefill_ms?: number } | undefined;
  readonly tokenizer?: {
    encode(text: string, options?: { add_special_tokens?: boolean }): Promise<number[]>;
  };
}

/** `absent`: nothing was loaded yet; `failed`: loading failed, and is tried again. */
export type DeviceState = "absent" | "loading" | "ready" | "failed";

/** A pipeline, or a function that loads it. */
export type DeviceSource = Writer | (() => Promise<Writer>);

/** The device. */
export class Device implements Side {
  readonly where = "device";
  state: DeviceState = "absent";
  private loading: Promise<Writer> | undefined;

  constructor(private readonly source: DeviceSource) {
    if (source.length || "task" in source) {
      this.state = "ready";
      this.loading = Promise.resolve(source as Writer);
    }
  }

  /** Loads the model, once. @throws what the function throws */
  load(): Promise<Writer> {
    if (this.loading) return this.loading;
    this.state = "loading";
    const load = async () => await (this.source as () => Promise<Writer>)();
    this.loading = load().then(
      (made) => {
        this.state = "ready";
        return made;
      },
      (e: unknown) => {
        this.state = "failed";
        this.loading = undefined;
        throw e;
      },
    );
    return this.loading;
  }

  can(): boolean {
    return true;
  }

  async *write(task: Task, signal: AbortSignal): AsyncGenerator<Piece> {
    // Loading goes on when another side was faster: the next call finds the model here.
    const pipe = await until(this.load(), signal);
    yield { text: "", tokens: 0, begun: true };
    const pieces: Piece[] = [];
    let wake = () => {};
    let over = false;
    let failed = false;
    let [told, text] = [0, ""];
    const done = pipe(continued(task), {
      ...task.fields,
      max_new_tokens: task.tokens,
      return_full_text: false,
      return_dict_in_generate: true,
      streamer: (piece: string) => {
        const tokens = Math.ceil(piece.length / 4);
        told += tokens;
        text += piece;
        pieces.push({ text: piece, tokens });
        wake();
      },
      signal,
    });
    const end = (bad: boolean) => {
      [over, failed] = [true, bad];
      wake();
    };
    done.then(
      () => end(false),
      () => end(true),
    );
    while (!over || pieces.length) {
      if (pieces.length) yield pieces.shift()!;
      else await new Promise<void>((resolve) => (wake = resolve));
    }
    if (failed && text && !signal.aborted) {
      // The other side goes on with what is left: count it, without the space of the next word.
      const ids = await pipe.tokenizer
        ?.encode(text.trimEnd(), { add_special_tokens: false })
        .catch(() => undefined); // what failed is told below
      if (ids) yield { text: "", tokens: ids.length - told };
    }
    const [result] = (await done) as { finish_reasons?: string }[];
    const tokens = (pipe.stats?.new_tokens ?? told) - told;
    yield { text: "", tokens, finish: result?.finish_reasons ?? "eos" };
  }
}

/** A promise, or Aborted when the signal fires first. */
function until<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const stop = () => reject(aborted(signal));
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
  });
}
