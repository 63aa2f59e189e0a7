// Pipelines for other tasks than text generation.

import { throwIfAborted } from "../../shared/abort.ts";
import type { HandlersOf, Scope } from "../calls.ts";
import type { Learner } from "../model/model.ts";
import type { DiffusionHost } from "../pipelines/diffusion/index.ts";
import type { TaskHost } from "../pipelines/host.ts";

/** The methods of the pipeline that a worker has. */
export function taskMethods(scope: Scope): HandlersOf<"task"> {
  let task: TaskHost | undefined;
  return {
    async task_open(request, { signal, send }) {
      const { openTask } = await import("../pipelines/index.ts");
      throwIfAborted(signal);
      task = await openTask(request, signal, (progress) => send({ progress }));
      task.on.moved = (device) => scope.post({ device });
      const host = task;
      let learner: Learner | undefined;
      scope.task = async () => {
        const { learnerOf } = await import("../training/index.ts");
        const { runnerOf } = await import("../pipelines/index.ts");
        // adapters end with a lost GPU
        if (learner?.device !== host.device)
          learner = learnerOf(host, async () => {
            const { pairs } = await runnerOf(host);
            return pairs && { ...pairs, prepare: (given) => pairs.prepare(host, given) };
          });
        return learner;
      };
      return task.info;
    },
    task_call: (request, { signal, send, move, order }) =>
      scope.turn(
        0,
        async () => {
          throwIfAborted(signal);
          const { runTask } = await import("../pipelines/index.ts");
          const { value, transfer } = await runTask(task!, request, signal, {
            streams: request.streams,
            text: (text, end) => send({ text, end }),
            send: (name, value) => send({ event: { name, value } }),
          });
          move(transfer);
          return value;
        },
        order,
        signal,
      ),
    async task_feed(request, { signal, order }) {
      const { feedTask } = await import("../pipelines/index.ts");
      return feedTask(task!, request, (work) => scope.turn(0, work, order), signal);
    },
    task_head: (request, { signal, order }) =>
      scope.turn(
        0,
        async () => {
          throwIfAborted(signal);
          const { runHead } = await import("../pipelines/heads/index.ts");
          return runHead(task!, request, signal);
        },
        order,
        signal,
      ),
  };
}

/** The methods of the text-to-image pipeline that a worker has. */
export function drawMethods(scope: Scope): HandlersOf<"draw"> {
  let drawing: DiffusionHost | undefined;
  return {
    async draw_open(request, { signal, send }) {
      const { DiffusionHost } = await import("../pipelines/diffusion/index.ts");
      throwIfAborted(signal);
      drawing = await DiffusionHost.load(request, signal, (progress) => send({ progress }));
      drawing.moved = (device) => scope.post({ device });
      return drawing.info;
    },
    draw_call: (request, { signal, send, move, order }) =>
      scope.turn(
        0,
        async () => {
          throwIfAborted(signal);
          const { draw } = await import("../pipelines/diffusion/index.ts");
          const made = await draw(drawing!, request, signal, (progress) => send({ progress }));
          move(made.pictures.map(({ data }) => data.buffer));
          return made;
        },
        order,
        signal,
      ),
  };
}
