// The worker of a pipeline or session: runs the engine, the tokenizer and the generation loop, so
// that the page's thread only exchanges messages.

import { closeDevices, gpuPart } from "../device/open.ts";
import { plainError } from "../protocol/errors.ts";
import type { Call as CallMessage, FromWorker, ToWorker } from "../protocol/messages.ts";
import { Line } from "../shared/line.ts";
import { holdLife, life } from "../shared/lives.ts";
import { pace, shares } from "../shared/share.ts";
import { receiveFromPage, spawnByPage } from "../shared/spawn.ts";
import { setStallTimeout } from "../shared/watchdog.ts";
import { type Call, type Handlers, Scope } from "./calls.ts";
import { compilersEnded } from "./compiler-client.ts";
import { parts } from "./parts.ts";
import { artifactMethods } from "./sessions/artifacts.ts";
import { gpuMethods } from "./sessions/gpu-report.ts";
import { graphMethods } from "./sessions/graphs.ts";
import { inferenceMethods } from "./sessions/inference.ts";
import { modelMethods } from "./sessions/models.ts";
import { profileMethods } from "./sessions/profile.ts";
import { drawMethods, taskMethods } from "./sessions/tasks.ts";
import { trainingMethods } from "./sessions/training.ts";
import { vectorMethods } from "./sessions/vectors.ts";
import { working } from "./text/working.ts";

const post = postMessage as (message: FromWorker, transfer?: Transferable[]) => void;
working.report = (what) => post({ working: what });
shares.report = (threads) => post({ threads });
gpuPart.load = () => import("../device/webgpu/device.ts");
gpuPart.probe = () => import("../device/webgpu/probe.ts");

const scope = new Scope((message) => post(message)); // `postMessage` is no method of a scope
const methods: Handlers = {
  ...modelMethods(scope),
  ...trainingMethods(scope),
  ...taskMethods(scope),
  ...drawMethods(scope),
  ...graphMethods(scope),
  ...inferenceMethods(scope),
  ...artifactMethods(scope),
  ...profileMethods(scope),
  ...vectorMethods(scope),
  ...gpuMethods(scope),
  async storage({ call, args }) {
    const work: object = /checkpoint/i.test(call)
      ? (await import("./training/index.ts")).storage
      : (await import("./storage/index.ts")).storage;
    return (work as Record<string, (...args: unknown[]) => unknown>)[call]!(...args);
  },
};

const running = new Map<number, AbortController>();

/** The page's line. */
let line: Line | undefined;

/** How long calls of the line may keep messages waiting that are not the page's. */
const TURN_MS = 8;

/** Answers calls that come by the line. */
async function listen(): Promise<void> {
  const until = performance.now() + TURN_MS;
  const more = () => running.size === 1 && performance.now() < until;
  for (let stays = !running.size; stays; ) {
    const call = line!.next();
    if (!call) return;
    stays = await answer({ method: "inference_run", ...call } as CallMessage, more);
  }
}

/**
 * Answers a call of the page.
 * @param more of a call that came by the line: whether the worker listens for another one
 * @returns whether it told the page so
 */
async function answer(
  { id, method, request, order = 0 }: CallMessage,
  more?: () => boolean,
): Promise<boolean> {
  const controller = new AbortController();
  if (!running.size) pace.begin();
  running.set(id, controller);
  const transfer: Transferable[] = [];
  let quiet = true; // the answer must not come before the call's events
  let by = more && line;
  let stays = false;
  try {
    const handle = methods[method] as (request: unknown, call: Call) => unknown;
    const value = await handle(request, {
      signal: controller.signal,
      order,
      send: (event) => {
        quiet = false;
        post({ id, ...event });
      },
      move: (buffers) => transfer.push(...buffers),
    });
    stays = !!more?.();
    const told = by?.answer(quiet ? value : undefined, stays);
    by = undefined;
    if (!told) post({ id, value }, transfer);
  } catch (e) {
    by?.answer(undefined, false);
    post({ id, error: plainError(e) });
  } finally {
    running.delete(id);
  }
  return stays;
}

/**
 * Time for ended threads to disappear; Chromium leaks a thread if the worker that ended it is
 * itself ended meanwhile.
 */
const THREADS_END_MS = 200;

/** Ends all threads and Python, then notifies the page. */
async function end(): Promise<void> {
  for (const controller of running.values()) controller.abort();
  scope.ended.abort(); // ends the Python of sessions before compilersEnded is awaited
  await Promise.all([closeDevices(), compilersEnded()]);
  setTimeout(() => post({ ended: true }), THREADS_END_MS);
}

/** Serves the pipeline or session that this worker is made for. */
export function serveWorker(): void {
  spawnByPage(post);
  addEventListener("message", ({ data }: MessageEvent<ToWorker>) => {
    line?.received();
    if ("start" in data) {
      setStallTimeout(data.start.stallTimeout);
      parts.files = data.start.parts;
      if (data.start.share) shares.cell = new Int32Array(data.start.share);
      life.name = data.start.life;
      life.report = (name, held) => post({ life: name, held });
      holdLife(life.name, (watched) => watched && life.report(life.name, true));
      post({ started: true });
    } else if ("child" in data) receiveFromPage(data);
    else if ("end" in data) void end();
    else if ("abort" in data) {
      running.get(data.id)?.abort(data.reason === undefined ? undefined : new Error(data.reason));
      pace.hurry();
    } else if ("waits" in data) pace.set(data.waits);
    else if ("line" in data) line = new Line(data.line);
    else
      void answer(data).then(() =>
        line && data.method === "inference_run" ? listen() : undefined,
      );
  });
}
