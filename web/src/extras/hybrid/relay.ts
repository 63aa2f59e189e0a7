// Plays one call on its sides: begins them, takes the first token that comes, and hands the text so
// far to the other side when one fails.

import { aborted } from "../../shared/abort.ts";
import { EdgewiseError } from "../../shared/errors.ts";
import { seconds } from "../../shared/watchdog.ts";
import type { Clock } from "./clock.ts";
import type { Rates } from "./rates.ts";
import type { Piece, Side, Task, Where } from "./side.ts";

/** No side could finish the text. */
export class HybridError extends EdgewiseError {
  static override readonly className = "HybridError";
  /** The text so far. */
  text = "";
  /** What happened on each side, in order. */
  errors: unknown[] = [];
}

/** How a call went. */
export interface Outcome {
  /** The new text. */
  text: string;
  /** Why it ended. */
  finish: string;
  /** Which side had the first token. */
  where: Where;
  /** Milliseconds to the first token. */
  firstToken: number;
  /** Where the text went on elsewhere: at which character, to which side and why. */
  switches: { at: number; to: Where; why: string }[];
}

/** A call. */
export interface Call {
  input: Task["input"];
  fields: Task["fields"];
  /** New tokens at most. */ tokens: number;
  /** Tokens of the prompt, for the rates. */ prompt: number;
  /** Begin at once. */ first: Side[];
  /** May begin later. */ others: Side[];
  /** Milliseconds before the first token after which the others begin. */ patience?: number;
  /** Milliseconds without a token after which a side has failed. */ stall: number;
  /** Milliseconds without a first token after which a cloud has failed. */ timeout: number;
  signal?: AbortSignal | undefined;
  /** Receives new text. */ emit(text: string): void;
}

// A side that failed so often in one call gets no further chance, even if it had made progress.
const MAX_FAILURES = 8;

type Event =
  | { run: Run; piece: Piece }
  | { run: Run; error: unknown }
  | { run: undefined; timer: true };

/** A side at work. */
class Run {
  readonly control = new AbortController();
  next: Promise<Event>;
  begun: number;
  first: number | undefined; // when its first token came
  last = 0;
  tokens = 0;
  /** Resolves when a cloud has been silent for too long before its first token. */
  late: Promise<Event>;
  private timer = new AbortController();
  private readonly pieces: AsyncIterator<Piece>;

  constructor(
    readonly side: Side,
    task: Task,
    private readonly clock: Clock,
    private readonly timeout: number,
  ) {
    this.begun = clock.now();
    this.pieces = side.write(task, this.control.signal)[Symbol.asyncIterator]();
    this.next = this.pull();
    this.late = this.watch();
  }

  /** Waits for the first token anew; a device has watchdogs of its own. */
  private watch(): Promise<Event> {
    this.timer.abort();
    this.timer = new AbortController();
    const never = new Promise<Event>(() => undefined);
    if (this.first !== undefined || this.side.where === "device") return never;
    const what = `it sent no token within ${seconds(this.timeout)}`;
    const error = new EdgewiseError(what, "cloud", "Is it there? `timeout` sets how long to wait.");
    return this.clock.sleep(this.timeout, this.timer.signal).then(
      () => ({ run: this, error }),
      () => never,
    );
  }

  /** Waits for the next piece. */
  pull(): Promise<Event> {
    this.next = this.pieces.next().then(
      ({ value, done }) =>
        done
          ? { run: this, error: new EdgewiseError("it ended without an end", this.side.where) }
          : { run: this, piece: value },
      (error: unknown) => ({ run: this, error }),
    );
    return this.next;
  }

  /** Notes a piece. Returns whether it is progress. */
  take(piece: Piece): boolean {
    const now = this.clock.now();
    if (piece.begun) this.begun = now;
    this.tokens += piece.tokens;
    const progress = piece.text !== "" || piece.finish !== undefined;
    if (progress) {
      this.first ??= now;
      this.last = now;
    }
    if (progress || piece.alive) this.late = this.watch();
    return progress;
  }

  /** Ends it. */
  stop(): void {
    this.control.abort();
    this.timer.abort();
    this.next.catch(() => undefined);
    void this.pieces.return?.(undefined)?.catch(() => undefined);
  }
}

/** The text of a call: the texts of its sides, joined. */
class Text {
  whole = "";
  tokens = 0;
  private lost = "";

  constructor(private readonly emit: (text: string) => void) {}

  /** The beginning for another side. White space at its end is left out: templates trim it. */
  prefix(): string {
    const kept = this.whole.trimEnd();
    this.lost = this.whole.slice(kept.length);
    return kept;
  }

  /** Adds new text, without the white space that was told already. */
  add(text: string): void {
    let n = 0;
    while (n < text.length && n < this.lost.length && text[n] === this.lost[n]) n++;
    this.lost = n < text.length ? "" : this.lost.slice(n);
    const fresh = text.slice(n);
    this.whole += fresh;
    if (fresh) this.emit(fresh);
  }
}

/** Plays a call. @throws HybridError, Aborted (with `text`) */
export async function relay(call: Call, clock: Clock, rates: Rates): Promise<Outcome> {
  const played = new Relay(call, clock, rates);
  return await played.play();
}

class Relay {
  private readonly text: Text;
  private readonly begun: number;
  private readonly errors: unknown[] = [];
  private readonly dead = new Set<Side>();
  private readonly failures = new Map<Side, number>();
  private readonly outcome: Outcome;
  private runs: Run[] = [];
  private waiting: Side[];
  private running = false; // whether there was a first token
  private timer = new AbortController();

  constructor(
    private readonly call: Call,
    private readonly clock: Clock,
    private readonly rates: Rates,
  ) {
    this.text = new Text(call.emit);
    this.begun = clock.now();
    this.waiting = [...call.others];
    this.outcome = { text: "", finish: "", where: "device", firstToken: 0, switches: [] };
  }

  async play(): Promise<Outcome> {
    let release = () => {};
    const stopped = new Promise<Event>((_, reject) => {
      const stop = () => reject(aborted(this.call.signal));
      if (this.call.signal?.aborted) stop();
      this.call.signal?.addEventListener("abort", stop, { once: true });
      release = () => this.call.signal?.removeEventListener("abort", stop);
    });
    stopped.catch(() => undefined);
    try {
      this.begin(this.call.first);
      for (;;) {
        const left = await this.phase(stopped);
        if (!left) return { ...this.outcome, text: this.text.whole };
        if (this.text.tokens >= this.call.tokens)
          return { ...this.outcome, text: this.text.whole, finish: "length" };
        this.change(left);
      }
    } catch (e) {
      throw Object.assign(e as Error, { text: this.text.whole });
    } finally {
      release();
      this.timer.abort();
      for (const run of this.runs) this.end(run);
    }
  }

  /** What is left to do. */
  private task(): Task {
    const { input, fields, tokens } = this.call;
    return { input, fields, prefix: this.text.prefix(), tokens: tokens - this.text.tokens };
  }

  private begin(sides: Side[]): void {
    const task = this.task();
    const { timeout } = this.call;
    for (const side of sides) this.runs.push(new Run(side, task, this.clock, timeout));
  }

  /** Runs until the text ends (undefined), or all sides at work failed: why. */
  private async phase(stopped: Promise<Event>): Promise<string | undefined> {
    let winner: Run | undefined;
    // A cloud that takes over must not hang either, while there is a side that could go on.
    const clouds = this.runs.some((run) => run.side.where === "cloud");
    const { stall, patience = clouds ? stall : undefined } = this.call;
    let waits = this.wait(this.waiting.length ? patience : undefined);
    for (;;) {
      const sides = this.runs.flatMap((r) => [r.next, r.late]);
      const event = await Promise.race([...sides, waits, stopped]);
      const { run } = event;
      if (!run) {
        if (winner)
          return this.fail(winner, new EdgewiseError("no token for too long", winner.side.where));
        waits = this.wait(undefined);
        const task = this.task();
        this.begin(this.waiting.splice(0).filter((side) => side.can(task)));
        continue;
      }
      if ("error" in event) {
        const why = this.fail(run, event.error);
        if (this.runs.length) continue;
        return why;
      }
      const progress = run.take(event.piece);
      if (!progress) {
        if (run === winner) this.text.tokens += event.piece.tokens;
        if (run === winner && event.piece.alive) waits = this.wait(stall);
        void run.pull();
        continue;
      }
      if (!winner) this.won((winner = run));
      this.text.tokens += event.piece.tokens;
      this.text.add(event.piece.text);
      if (event.piece.finish) return this.finished(run, event.piece.finish);
      waits = this.wait(stall);
      void run.pull();
    }
  }

  /** A promise that resolves after `ms`; never, if they are undefined. The last one is ended. */
  private wait(ms: number | undefined): Promise<Event> {
    this.timer.abort();
    this.timer = new AbortController();
    if (ms === undefined) return new Promise(() => undefined);
    return this.clock.sleep(ms, this.timer.signal).then(
      () => ({ run: undefined, timer: true }) as const,
      () => new Promise<Event>(() => undefined),
    );
  }

  private won(run: Run): void {
    if (!this.running) {
      this.running = true;
      this.outcome.firstToken = this.clock.now() - this.begun;
      this.outcome.where = run.side.where;
    }
    for (const other of this.runs)
      if (other !== run) {
        this.end(other);
        this.waiting.push(other.side);
      }
    this.runs = [run];
  }

  /** Ends a run that is not needed any more. */
  private end(run: Run): void {
    run.stop();
    const { where } = run.side;
    if (run.first === undefined)
      this.rates.atLeast(where, this.clock.now() - run.begun, this.call.prompt);
  }

  /** A run failed. Returns why, in words. */
  private fail(run: Run, error: unknown): string {
    run.stop();
    this.runs = this.runs.filter((r) => r !== run);
    this.errors.push(error);
    this.rates.failed(run.side.where);
    const failures = (this.failures.get(run.side) ?? 0) + 1;
    this.failures.set(run.side, failures);
    if (run.first !== undefined && failures < MAX_FAILURES) this.waiting.push(run.side);
    else this.dead.add(run.side);
    return error instanceof Error ? error.message : String(error);
  }

  private finished(run: Run, finish: string): undefined {
    this.runs = [];
    this.timer.abort();
    run.stop();
    this.outcome.finish = finish;
    this.rates.observe(run.side.where, {
      first: run.first! - run.begun,
      prompt: this.call.prompt,
      tokens: run.tokens - 1,
      rest: run.last - run.first!,
    });
    return undefined;
  }

  /** Goes on with another side. @throws HybridError if there is none */
  private change(why: string): void {
    const task = this.task();
    const able = (side: Side) => !this.dead.has(side) && side.can(task);
    // The one that failed last comes last.
    const next = this.waiting.find(able);
    if (!next)
      throw Object.assign(new HybridError(why, "hybrid", "No side is left that could go on."), {
        errors: this.errors,
      });
    this.waiting = this.waiting.filter((side) => side !== next);
    this.outcome.switches.push({ at: this.text.whole.length, to: next.where, why });
    this.begin([next]);
  }
}
