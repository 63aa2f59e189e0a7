// Server-sent events, as far as OpenAI's API uses them: the data of each event is a line of JSON.

import { EdgewiseError } from "../../shared/errors.ts";

const MAX_LINE = 1 << 20; // characters
const MAX_TEXT = 64 << 20; // characters of a stream

/** An endpoint failed, refused, or sent something else than an answer. */
export class CloudError extends EdgewiseError {
  static override readonly className = "CloudError";
  /** The status of HTTP; 0: there was no answer. */
  status = 0;
}

/**
 * The data of the events of a stream, up to `[DONE]`; an empty text for what only keeps the
 * connection alive: comments, as those of llama.cpp and OpenRouter, and events without data.
 * @throws CloudError if the stream is none, or ends before `[DONE]`
 */
export async function* eventsOf(response: Response, where: string): AsyncGenerator<string> {
  const reader = response.body?.getReader();
  if (!reader) throw new CloudError("the answer is empty", where);
  const decoder = new TextDecoder();
  let [rest, total] = ["", 0];
  let data: string[] = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      const text = decoder.decode(value, { stream: !done });
      total += text.length;
      rest += text;
      if (total > MAX_TEXT || rest.length > MAX_LINE + text.length)
        throw new CloudError("the answer is longer than any answer", where);
      const lines = rest.split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop()!;
      for (const line of lines) {
        if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
        // llama.cpp's own field, until the end of 2025
        else if (line.startsWith("error:")) data.push(`{"error":${line.slice(6)}}`);
        else if (line[0] === ":") yield "";
        if (line || !data.length) continue;
        const event = data.join("\n");
        data = [];
        if (event === "[DONE]") return;
        yield event;
      }
      if (done) throw new CloudError("the answer broke off", where);
    }
  } finally {
    reader.cancel().catch(() => undefined); // the connection is closed
  }
}
