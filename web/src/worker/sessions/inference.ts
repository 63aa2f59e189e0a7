// InferenceSession, in a worker or in the page's thread.

import { throwIfAborted } from "../../shared/abort.ts";
import { type Call, type HandlersOf, released, type Scope } from "../calls.ts";
import { sessionWarnings } from "../files/reports.ts";
import type { Answer, InferenceService } from "../inference/service.ts";

async function moved<T>({ move }: Call, answer: Promise<Answer<T>>): Promise<T> {
  const { value, transfer } = await answer;
  move(transfer);
  return value;
}

/** The methods of the session that a worker, or a page without one, has. */
export function inferenceMethods(scope: Scope): HandlersOf<"inference"> {
  let service: InferenceService | undefined;

  function opened(): InferenceService {
    if (!service) throw released("InferenceSession");
    return service;
  }

  return {
    async inference_open(request, { signal, send }) {
      const { InferenceService } = await import("../inference/service.ts");
      throwIfAborted(signal);
      const session = new InferenceService();
      const { signal: ended } = scope.ended;
      ended.addEventListener("abort", () => session.close());
      service = session;
      scope.device = () => session.device;
      const info = await session.open(request, (progress) => send({ progress }), signal);
      if (ended.aborted) session.close(); // it ended while it opened
      return info;
    },
    inference_run: (request, call) =>
      moved(
        call,
        opened().run(
          request,
          call.signal,
          sessionWarnings((progress) => call.send({ progress })),
          call.order,
          call.signal,
        ),
      ),
    inference_read: ({ id }, call) => moved(call, opened().read(id)),
    inference_drop: ({ ids }) => opened().drop(ids),
  };
}
