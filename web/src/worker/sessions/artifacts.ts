// TrainingSession: training on ONNX Runtime Training's artifacts.

import { throwIfAborted } from "../../shared/abort.ts";
import { NotFound } from "../../shared/files/connection.ts";
import { HttpSource } from "../../shared/files/http.ts";
import { toBlob } from "../../shared/files/source.ts";
import { type HandlersOf, released, type Scope } from "../calls.ts";
import { notThere } from "../model/not-there.ts";
import type { ArtifactSession } from "../training/artifacts.ts";

/** The methods of the session that a worker has. */
export function artifactMethods(scope: Scope): HandlersOf<"artifacts"> {
  let session: ArtifactSession | undefined;

  function inTurn<T>(
    work: (session: ArtifactSession) => T | Promise<T>,
    signal?: AbortSignal,
  ): Promise<T> {
    const task = () => {
      throwIfAborted(signal);
      if (!session) throw released("TrainingSession");
      return work(session);
    };
    return scope.turn(0, task, 0, signal);
  }

  return {
    async artifacts_open({ files, urls, device, flavour, threads }, { signal }) {
      const given = await readAll(files, signal);
      const { ArtifactSession } = await import("../training/index.ts");
      const { signal: ended } = scope.ended;
      const made = await ArtifactSession.open(given, urls, { device, flavour, threads }, ended);
      session = made;
      scope.device = () => made.device;
      return made.info;
    },
    artifacts_run: ({ kind, feeds }, { signal }) =>
      inTurn((one) => one.run(kind, feeds, signal), signal),
    artifacts_update: (_, { signal }) => inTurn((one) => one.update(), signal),
    artifacts_reset: () => inTurn((one) => one.reset()),
    artifacts_rate: ({ rate }) => inTurn((one) => one.learningRate(rate)),
    artifacts_seed: ({ seed }) => inTurn((one) => one.setSeed(seed)),
    artifacts_read: ({ names }) => inTurn((one) => one.read(names)),
    artifacts_write: ({ values }) => inTurn((one) => one.write(values)),
    artifacts_save: ({ optimizer }, { signal }) => inTurn((one) => one.save(optimizer), signal),
    artifacts_export: ({ outputs }, { signal }) => inTurn((one) => one.export(outputs), signal),
  };
}

/** The files by name; those that are addresses are fetched. */
async function readAll(
  files: Record<string, Blob | string>,
  signal: AbortSignal,
): Promise<Map<string, Blob>> {
  const read = async (file: Blob | string): Promise<Blob> =>
    typeof file !== "string"
      ? file
      : toBlob(new HttpSource(file, { signal })).catch((e: unknown) =>
          Promise.reject(e instanceof NotFound ? notThere(e) : e),
        );
  return new Map(
    await Promise.all(
      Object.entries(files).map(
        async ([name, file]): Promise<[string, Blob]> => [name, await read(file)],
      ),
    ),
  );
}
