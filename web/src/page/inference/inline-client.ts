// The page's side of a session without a worker (src/worker/inline.ts).

import { makeError } from "../../protocol/errors.ts";
import type { InlineCalls } from "../../protocol/inline.ts";
import type { Methods } from "../../protocol/methods.ts";
import { Aborted, type EdgewiseError, EngineError } from "../../shared/errors.ts";
import type { CallOptions } from "../client.ts";
import { env } from "../env.ts";

/** What a session sends its calls to: the Client of a worker, or an InlineClient. */
export interface SessionClient {
  call<M extends keyof Methods>(
    method: M,
    request: Parameters<Methods[M]>[0],
    options?: CallOptions,
  ): Promise<ReturnType<Methods[M]>>;
  end(error?: EdgewiseError): void;
  /** Makes calls faster where page and worker share memory. */
  openLine?(): void;
  /** Whether it can be called. */
  readonly alive: boolean;
}

/** Executes calls in this thread. */
export class InlineClient implements SessionClient {
  private dead: EdgewiseError | undefined;

  private constructor(private readonly session: InlineCalls) {}

  /** @throws EngineError if the script cannot be loaded */
  static async load(url: string): Promise<InlineClient> {
    try {
      const module = (await import(/* webpackIgnore: true */ /* @vite-ignore */ url)) as {
        InlineSession: new (patience: number) => InlineCalls;
      };
      return new InlineClient(new module.InlineSession(env.stallTimeout));
    } catch (e) {
      throw new EngineError(
        "the part for sessions without a worker could not be loaded " +
          `(${e instanceof Error ? e.message : String(e)})`,
        url,
        "Serve inline.js beside edgewise.js, or set env.inlineUrl.",
      );
    }
  }

  get alive(): boolean {
    return !this.dead;
  }

  async call<M extends keyof Methods>(
    method: M,
    request: Parameters<Methods[M]>[0],
    { signal, onProgress }: CallOptions = {},
  ): Promise<ReturnType<Methods[M]>> {
    if (this.dead) throw this.dead;
    const answer = await this.session.call(method, request as never, signal, onProgress);
    if ("error" in answer) throw makeError(answer.error);
    return answer.value as ReturnType<Methods[M]>;
  }

  end(error: EdgewiseError = new Aborted("the session was released", "", "Make a new one.")): void {
    if (this.dead) return;
    this.dead = error;
    this.session.end();
  }
}
