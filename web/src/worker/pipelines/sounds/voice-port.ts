// Speech in a stream of another pipeline's: its worker sends the samples of its stream to the
// worker of voice-activity-detection, which answers with what happened in them.

import { type PlainError, plainError } from "../../../protocol/errors.ts";
import { aborted } from "../../../shared/abort.ts";
import { InputError } from "../../../shared/errors.ts";
import { stalled, within } from "../../../shared/watchdog.ts";
import type { Ending } from "../host.ts";
import type { TaskStream, Voice, VoiceEvent } from "../runner.ts";

type Answer = { events: VoiceEvent[] } | { error: Pick<PlainError, "what" | "remedy"> };

/** Asks the worker at the other end of a port. */
export class PortVoice implements Voice {
  speaking = false;

  constructor(private readonly port: MessagePort) {}

  async feed(samples: Float32Array<ArrayBuffer>, ending: Ending): Promise<VoiceEvent[]> {
    const { port } = this;
    const answered = new Promise<Answer>((resolve, reject) => {
      port.onmessage = ({ data }: MessageEvent<Answer>) => resolve(data);
      ending.addEventListener("abort", () => reject(aborted(ending)), { once: true });
    });
    const copy = samples.slice();
    port.postMessage(copy, [copy.buffer]);
    const remedy = "Do not dispose of it while a stream uses it.";
    const answer = await within(answered, () => stalled("the pipeline", "options.vad", remedy));
    if ("error" in answer) {
      const { what, remedy } = answer.error;
      throw new InputError(what, "options.vad", remedy);
    }
    for (const { end } of answer.events) this.speaking = end === undefined;
    return answer.events;
  }

  close(): void {
    this.port.close();
  }
}

/**
 * Answers another worker's stream.
 * @param stream of voice activity
 * @param turn runs work when the engine is free
 */
export function serveVoice(
  port: MessagePort,
  stream: Promise<TaskStream>,
  turn: <T>(work: () => Promise<T>) => Promise<T>,
): void {
  const never = new AbortController().signal;
  port.onmessage = async ({ data }: MessageEvent<Float32Array<ArrayBuffer>>) => {
    let answer: Answer;
    try {
      const found = await turn(async () => (await stream).feed(data, never));
      answer = { events: found as VoiceEvent[] };
    } catch (e) {
      answer = { error: plainError(e) };
    }
    port.postMessage(answer);
  };
}
