// Models that no package has: codecs, some that speak, and others from sound to sound.

import { throwIfAborted } from "../../shared/abort.ts";
import { InputError } from "../../shared/errors.ts";
import type { HandlersOf, Scope } from "../calls.ts";
import type { GraphModel, OpenGraphs } from "../graphs/kinds.ts";

const KINDS: Readonly<Record<string, () => Promise<{ open: OpenGraphs }>>> = {
  "audio-to-audio": () => import("../pipelines/enhancement/index.ts"),
  codec: () => import("../pipelines/codecs/index.ts"),
  "speaker-diarization": () => import("../pipelines/diarization/index.ts"),
  "text-to-speech": () => import("../pipelines/speakers/index.ts"),
};

/** The methods of a model of several graphs. */
export function graphMethods(scope: Scope): HandlersOf<"graphs"> {
  let model: GraphModel | undefined;
  return {
    async graphs_open(request, { signal, send }) {
      const kind = KINDS[request.task];
      if (!kind) throw new InputError(`there is no '${request.task}'`, "graphs");
      const { open } = await kind();
      throwIfAborted(signal);
      const { signal: ended } = scope.ended;
      const opened = await open(request, ended, (progress) => send({ progress }));
      ended.addEventListener("abort", () => opened.close());
      if (ended.aborted || signal.aborted) opened.close();
      throwIfAborted(signal);
      model = opened;
      return opened.info;
    },
    graphs_call: (request, { signal, send, move, order }) =>
      scope.turn(
        0,
        async () => {
          throwIfAborted(signal);
          const answer = await model!.call(request, signal, (name, value) =>
            send({ event: { name, value } }),
          );
          move(buffersIn(answer));
          return answer;
        },
        order,
        signal,
      ),
  };
}

/** The buffers of tensors. */
function buffersIn(value: unknown): ArrayBuffer[] {
  if (ArrayBuffer.isView(value)) return [value.buffer as ArrayBuffer];
  if (typeof value !== "object" || value === null) return [];
  return [...new Set(Object.values(value).flatMap(buffersIn))];
}
