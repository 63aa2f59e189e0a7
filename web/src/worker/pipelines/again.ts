// Calls of models with a decoder, whose state ends with a lost GPU: they begin again.

import { runAgain } from "../inference/service.ts";
import type { Ending, TaskHost } from "./host.ts";
import type { Events } from "./runner.ts";

/** Events of a call that may begin again: sent ones, and an end that waits. */
class Told implements Events {
  readonly streams: boolean;
  /** Whether text or results were sent. */
  any = false;
  private ended = false;
  private most = 0;

  constructor(private readonly events: Events) {
    this.streams = events.streams;
  }

  text(piece: string, end: boolean): void {
    this.ended ||= end;
    if (!piece) return;
    this.any = true;
    this.events.text(piece, false);
  }

  send(name: string, value: unknown): void {
    if (name !== "progress") this.any = true;
    else if ((value as number) <= this.most) return;
    else this.most = value as number;
    this.events.send(name, value);
  }

  end(): void {
    if (this.ended) this.events.text("", true);
  }
}

/**
 * Does work; if a GPU was lost meanwhile, again on another device. Not where text was sent, of
 * which the caller would get the beginning twice: the next call is then on that device.
 * @param work sends its events to what it gets
 */
export async function onceMore<T>(
  host: Pick<TaskHost, "device" | "recover">,
  events: Events,
  ending: Ending,
  work: (events: Events) => Promise<T>,
): Promise<T> {
  const told = new Told(events);
  let { device } = host;
  const recover = async () => {
    // one of its graphs may have moved
    if (host.device === device && !(await host.recover(ending))) return false;
    ({ device } = host);
    return !told.any;
  };
  try {
    return await runAgain(() => work(told), recover, ending);
  } finally {
    told.end();
  }
}
