// Opens a model of any kind: a package, plans stored by an earlier visit, or an .onnx file to be
// compiled by Python.

import type { Device } from "../../device/device.ts";
import {
  fasterOf,
  forPlans,
  openDevice,
  targetOf,
  withKernels,
  withRoom,
} from "../../device/open.ts";
import type { DeviceOptions } from "../../device/options.ts";
import type { ModelInfo, OpenRequest } from "../../protocol/inference.ts";
import type { Urls } from "../../protocol/loading.ts";
import { Aborted, ModelError, PackageError, StorageError } from "../../shared/errors.ts";
import type { Warn } from "../../shared/files/cached.ts";
import { NotFound } from "../../shared/files/connection.ts";
import { MAGIC } from "../../shared/files/magic.ts";
import { BlobSource, HandedSource } from "../../shared/files/source.ts";
import type { ByteSource } from "../../shared/files/stream.ts";
import { Compiler } from "../compiler-client.ts";
import { hasCompiled } from "../files/compiled.ts";
import { Downloads, nameOf } from "../files/downloads.ts";
import { KeptSource } from "../files/kept-source.ts";
import { type Progress, Reports, sessionWarnings } from "../files/reports.ts";
import { checkTable, neededBytes } from "../model/checks.ts";
import { dtypeOf } from "../model/dtypes.ts";
import { fillBeside } from "../model/fill.ts";
import { notThere } from "../model/not-there.ts";
import { Weights } from "../model/weights.ts";
import { worksOf } from "../model/works.ts";
import { openPackage } from "../package/package.ts";
import { ModelFiles } from "./files.ts";
import { type FoundPlans, KeptPlans, notesFile } from "./kept.ts";
import { type Compiling, PlanLibrary } from "./library.ts";
import { modelInfo } from "./manifest.ts";
import { InferenceModel } from "./model.ts";
import type { PartUnit } from "./program.ts";
import { Python, type PythonHost } from "./python.ts";

/** Starts Python; replaced in tests. */
export type StartPython = (urls: Urls, signal: AbortSignal) => PythonHost;

export const inWorker: StartPython = (urls, signal) => new Compiler(urls, signal);

/** A model with nothing loaded. */
function made(
  device: Device,
  weights: Weights,
  where: string,
  info: ModelInfo,
  request: OpenRequest,
  compiling: Compiling | undefined,
): InferenceModel {
  const library = new PlanLibrary(device, weights, where, request.max_memory_bytes, compiling);
  return new InferenceModel(library, { ...modelInfo(info), device: device.info }, request);
}

/**
 * Opens a model.
 * @param signal aborts opening, and ends the session later
 * @param progress receives the progress of files at addresses, and warnings
 * @param open opens the device, which is closed if the model cannot be opened
 * @throws ModelError, PackageError, InputError, EngineError, Aborted
 */
export async function openModel(
  request: OpenRequest,
  signal: AbortSignal,
  progress: Progress,
  startPython: StartPython = inWorker,
  open = openDevice,
): Promise<InferenceModel> {
  const { model, urls, device, flavour, threads } = request;
  const options = {
    ...urls,
    device,
    ...(flavour === undefined ? {} : { flavour }),
    ...(threads === undefined ? {} : { threads }),
  };
  const opening = (full: boolean) => beginOpening(open, { ...options, full });
  const downloads = downloadsOf(request, signal, sessionWarnings(progress));
  const reports = new Reports(String(model), progress);
  const begun = downloads?.begin((listing) => [...listing.from(model as string)]);
  begun?.catch(() => undefined); // reported where it is awaited
  const fetching = (url: string) => downloads!.source(url, reports.of(nameOf(url)));
  const opened = (await isOnnx(model))
    ? await openOnnx(
        async () => {
          await begun;
          const isKept = (url: string) => downloads!.isKept(url);
          return new ModelFiles(model as string | Blob, request.external, fetching, isKept);
        },
        () => startPython(urls, signal),
        // compared with Python's download, the full engine is small
        () => opening(true),
        request,
      )
    : await openPacked(
        async () => {
          await begun;
          if (typeof model === "string") return fetching(model);
          return model instanceof Blob
            ? new BlobSource(model, model instanceof File ? model.name : "model", { signal })
            : new HandedSource(model, { signal });
        },
        opening(false),
        request,
      );
  if (typeof model === "string") await downloads?.loaded(dtypeOf(model), request.cache);
  return opened;
}

/** The files of a model at an address, or of external data at an address. */
function downloadsOf(
  { model, external, cache_files: keep, fetch_options: fetchOptions }: OpenRequest,
  signal: AbortSignal,
  warn: Warn,
): Downloads | undefined {
  const url = [model, ...Object.values(external)].find((file) => typeof file === "string");
  return url === undefined ? undefined : new Downloads(url, { keep, signal, warn, fetchOptions });
}

/** Whether a model is an .onnx file; else it is a package. */
async function isOnnx(model: OpenRequest["model"]): Promise<boolean> {
  if (typeof model === "string") return !new URL(model).pathname.endsWith(".edge");
  return model instanceof Blob && (await model.slice(0, 8).text()) !== MAGIC;
}

/** Starts to open a device; errors are reported where it is awaited. */
function beginOpening(open: typeof openDevice, options: DeviceOptions): Promise<Device> {
  const opening = open(options);
  opening.catch(() => undefined);
  return opening;
}

function closeWhenOpen(opening: Promise<Device>): void {
  opening.then(
    (device) => device.close(),
    () => undefined,
  );
}

async function openPacked(
  makeSource: () => Promise<ByteSource>,
  opening: Promise<Device>,
  request: OpenRequest,
): Promise<InferenceModel> {
  let source: ByteSource | undefined;
  try {
    source = await makeSource();
    await source.open();
    return await fromPackage(source, await opening, request);
  } catch (e) {
    // the next load downloads it again
    if (e instanceof PackageError && source instanceof KeptSource) await source.forget();
    closeWhenOpen(opening);
    throw e instanceof NotFound ? notThere(e) : e;
  }
}

async function openOnnx(
  makeFiles: () => Promise<ModelFiles>,
  startPython: () => PythonHost,
  begin: () => Promise<Device>,
  request: OpenRequest,
): Promise<InferenceModel> {
  let opening = begin();
  let opened: InferenceModel | undefined;
  let files: ModelFiles | undefined;
  let python: Python | undefined;
  const ahead = startAhead(startPython, request.cache);
  try {
    files = await makeFiles();
    python = new Python(
      ahead.take,
      files,
      () => opened?.library.descriptions ?? [],
      async () => targetOf(await opening),
    );
    await files.mark(files.name); // reports a missing model at once
    const kept = request.cache ? await KeptPlans.of(await opening, files) : undefined;
    const compiling: Compiling = { files, kept, python };
    const found = await kept?.find();
    if (found) {
      try {
        const { manifest, ahead } = found.opened;
        opening = withRoom(await opening, neededBytes(manifest), files.name);
        opening = fasterOf(await opening, async () => worksOf(manifest, await ahead()));
        opened = await fromKept(found, await opening, compiling, request);
        return opened;
      } catch (e) {
        // caused by the network, the file or the user
        if (e instanceof ModelError || e instanceof Aborted || e instanceof NotFound) throw e;
        // otherwise a stored model file was damaged: download it again
        if (!(e instanceof StorageError)) await kept!.forget();
        (await opening).close(); // frees everything that was loaded
        opening = begin();
      }
    }
    const info = await python.open();
    opening = withRoom(await opening, await files.bytes(), files.name);
    const device = await opening;
    const weights = new Weights(device, { weights: new Map() });
    opened = made(device, weights, files.name, info, request, compiling);
    return opened;
  } catch (e) {
    python?.end();
    closeWhenOpen(opening);
    throw e instanceof NotFound ? notThere(e) : e;
  } finally {
    ahead.end();
    files?.close();
  }
}

/**
 * Starts Python if no plans are stored, as on a first visit: it is needed then, and starts while
 * the engine and the model are on their way.
 * @param cache whether stored plans are used
 */
function startAhead(start: () => PythonHost, cache: boolean): { take(): PythonHost; end(): void } {
  let host: PythonHost | undefined;
  let over = false;
  const begin = async (): Promise<void> => {
    if (!(cache && (await hasCompiled())) && !over) host = start();
  };
  begin().catch(() => undefined); // `take` reports it
  return {
    take() {
      over = true;
      const taken = host?.alive ? host : start();
      host = undefined;
      return taken;
    },
    /** Ends it, unless it was taken. */
    end() {
      over = true;
      host?.end();
      host = undefined;
    },
  };
}

/**
 * Opens a model with the plans of an earlier visit. Weights are read from the network or the file
 * directly into device memory; Python is started only for new shapes.
 */
async function fromKept(
  { opened, sources }: FoundPlans,
  device: Device,
  compiling: Compiling,
  request: OpenRequest,
): Promise<InferenceModel> {
  const { manifest, files } = opened;
  const where = compiling.files.name;
  checkTable(device, manifest, where);
  const { plans, programs } = manifest.inference!;
  const weights = new Weights(device, manifest);
  await fillBeside(opened, weights.extents(manifest, where), sources, where);
  const model = made(device, weights, where, manifest.inference!, request, compiling);
  const { library } = model;
  for (const weight of manifest.weights.values()) library.described.set(weight.name, weight);
  const units = new Map<string, PartUnit>();
  for (const program of programs) {
    await library.learn(program);
    for (const unit of program.units) if (unit.kind === "part") units.set(unit.part, unit);
  }
  for (const plan of plans) {
    library.next = Math.max(library.next, 1 + (Number(/\d+$/.exec(plan.file)?.[0]) || 0));
    const { inputs: names } = units.get(plan.part)!;
    library
      .part(plan.part)
      .add(
        names,
        await library.load(
          plan,
          names,
          files.get(plan.file),
          files.get(notesFile(plan.file)),
          plan === plans.at(-1),
        ),
      );
  }
  return ready(model);
}

/** Waits until the device has what was loaded. @throws OutOfMemory, EngineError */
async function ready(model: InferenceModel): Promise<InferenceModel> {
  const { device, info } = model;
  await device.ready();
  info.device = device.info;
  return model;
}

async function fromPackage(
  source: ByteSource,
  base: Device,
  request: OpenRequest,
): Promise<InferenceModel> {
  const where = source.name;
  const { manifest, files, ahead, finish } = await openPackage(source);
  checkTable(base, manifest, where);
  const { inference } = manifest;
  if (!inference)
    throw new PackageError(
      `its task is '${manifest.task}'`,
      where,
      `Load it with pipeline("${manifest.task}"); InferenceSession takes .onnx files and ` +
        "packages made with `edgewise build --dims`.",
    );
  const planned = await forPlans(base, manifest.target, where);
  const complete = await withKernels(planned, manifest.kernels, where);
  const roomy = await withRoom(complete, neededBytes(manifest), where);
  const device = await fasterOf(roomy, async () => worksOf(manifest, await ahead()));
  try {
    const weights = new Weights(device, manifest);
    await finish(weights.extents(manifest, where));
    const model = made(device, weights, where, inference, request, undefined);
    const { library } = model;
    library.addPackaged(inference, files);
    weights.compute(library.plansInUse(), true);
    return await ready(model);
  } catch (e) {
    device.close();
    throw e;
  }
}
