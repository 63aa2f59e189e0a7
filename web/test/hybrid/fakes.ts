// A clock that tests move, and sides that write a known text.

import type { Clock } from "../../src/extras/hybrid/clock.ts";
import type { Writer } from "../../src/extras/hybrid/device.ts";
import type { Cloud } from "../../src/extras/hybrid/openai.ts";
import type { Side, Task } from "../../src/extras/hybrid/side.ts";
import { continued } from "../../src/extras/hybrid/side.ts";
import { Aborted } from "../../src/shared/errors.ts";

/** Time that passes only when everybody waits. */
export class VirtualClock implements Clock {
  time = 0;
  private timers: { at: number; go: () => void }[] = [];

  now(): number {
    return this.time;
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(new Aborted("stopped"));
      const stop = () => {
        this.timers = this.timers.filter((t) => t !== timer);
        reject(new Aborted("stopped"));
      };
      const go = () => {
        signal?.removeEventListener("abort", stop);
        resolve();
      };
      const timer = { at: this.time + ms, go };
      this.timers.push(timer);
      signal?.addEventListener("abort", stop);
    });
  }

  /** Waits for a promise, and lets time pass for it. */
  async run<T>(promise: Promise<T>): Promise<T> {
    let over = false;
    const end = () => (over = true);
    promise.then(end, end);
    for (;;) {
      await new Promise((resolve) => setImmediate(resolve));
      if (over) return await promise;
      this.timers.sort((a, b) => a.at - b.at);
      const next = this.timers.shift();
      if (!next) throw new Error("everybody waits for ever");
      this.time = Math.max(this.time, next.at);
      next.go();
    }
  }
}

/** How a side behaves: what it does before a piece. */
export interface Behaviour {
  /** Waits, throws, or never ends. */
  before(piece: number, signal: AbortSignal): Promise<void> | void;
}

/** The text that both sides know, as tokens. */
export const TOKENS =
  "Once upon a time,  there was\n\n a  little fox. It said: “ça va”, and\n\tleft. ".match(
    /\s*\S{1,3}|\s+$/g,
  )!;
export const WHOLE = TOKENS.join("");

/** What follows a prompt and the text so far; templates trim it. */
function rest(input: string | { content: string }[], asked: string): string[] {
  const given = typeof input === "string" ? input : input.at(-1)!.content;
  const soFar = typeof input === "string" ? given.slice(asked.length) : given;
  const begin = given === asked ? "" : soFar.trimEnd();
  if (!WHOLE.startsWith(begin)) throw new Error(`'${begin}' is not the text so far`);
  return WHOLE.slice(begin.length).match(/\s*\S{1,3}|\s+$/g) ?? [];
}

/** A cloud that knows the text. */
export function fakeCloud(asked: string, behaviour: Behaviour): Cloud & { tasks: Task[] } {
  const tasks: Task[] = [];
  const side: Side = {
    where: "cloud",
    can: () => true,
    async *write(task, signal) {
      tasks.push(task);
      const pieces = rest(continued(task) as string, asked).slice(0, task.tokens);
      for (const [i, text] of pieces.entries()) {
        await behaviour.before(i, signal);
        yield { text, tokens: 1 };
      }
      yield { text: "", tokens: 0, finish: pieces.length < task.tokens ? "eos" : "length" };
    },
  };
  return { baseURL: "https://x/", model: "x", side: () => side, tasks };
}

/** A pipeline that knows the text. */
export function fakeDevice(asked: string, behaviour: Behaviour): Writer & { calls: unknown[] } {
  const calls: unknown[] = [];
  const pipe = async (input: unknown, options: Record<string, unknown> = {}) => {
    calls.push([input, options]);
    const signal = options.signal as AbortSignal;
    const most = options.max_new_tokens as number;
    const pieces = rest(input as string, asked).slice(0, most);
    for (const [i, text] of pieces.entries()) {
      await behaviour.before(i, signal);
      if (signal.aborted) throw new Aborted("stopped");
      (options.streamer as (text: string) => void)(text);
      await Promise.resolve();
    }
    return [{ generated_text: "", finish_reasons: pieces.length < most ? "eos" : "length" }];
  };
  return Object.assign(pipe, { calls, task: "text-generation" });
}

/** Waits until it is stopped. */
export function never(signal: AbortSignal): Promise<void> {
  return new Promise((_, reject) => {
    signal.addEventListener("abort", () => reject(new Aborted("stopped")));
  });
}
