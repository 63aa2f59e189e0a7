// Models with a head in their graph. Python makes them (python/edgewise/host/heads/exports.py), of
// the files that the pipeline's model was compiled from.

import { InputError } from "../../../shared/errors.ts";
import { Compiler, MissingFile } from "../../compiler-client.ts";
import type { Ending, TaskHost } from "../host.ts";
import { runnerOf } from "../tasks.ts";
import { featuresInfo } from "./features.ts";
import type { Saved } from "./files.ts";
import type { Head } from "./fit.ts";

const WHERE = "export";

/**
 * A file of a pipeline's model with a head.
 * @throws InputError, ModelError, Aborted
 */
export async function exported(
  host: TaskHost,
  saved: Saved,
  format: string,
  ending: Ending,
): Promise<Blob> {
  if (format !== "onnx" && format !== "edge")
    throw new InputError(`it is ${format.slice(0, 40)}`, "format", 'Give "onnx" or "edge".');
  const { weight, bias, labels } = headOf(saved);
  const { found, job, texts } = host.from;
  if (!found.onnx)
    throw new InputError(
      "the pipeline was opened from a package, which has no graph to put the head in",
      WHERE,
      "Make a pipeline of the model's .onnx files with {personalize: true}, `load` there what " +
        "`save` gives here, and export that.",
    );
  const { graph, files: given } = await found.onnx();
  const files = new Map(given);
  for (const [name, text] of texts) if (!files.has(name)) files.set(name, new Blob([text]));
  const { adapters } = saved;
  if (adapters) files.set("adapters", new Blob([adapters.data]));
  files.set("head.weight", new Blob([weight])).set("head.bias", new Blob([bias]));
  const { max_length, urls } = job.request;
  const options = {
    of: "head",
    form: format,
    model_file: graph,
    labels,
    task: saved.task,
    vectors: await vectorsOf(host),
    ...(adapters ? { lora: adapters.layout.to_dict() } : {}),
    ...(max_length === undefined ? {} : { max_length }),
  };
  const python = new Compiler(urls, ending);
  try {
    const made = await python.compile(files, options, () => undefined);
    return new Blob([made.files.get(format)!]);
  } catch (e) {
    throw e instanceof MissingFile ? e.error : e;
  } finally {
    python.end();
  }
}

function headOf({ head, fields, examples }: Saved): Head {
  if (head) return head;
  if (fields.method === "logistic")
    throw new InputError(
      `it knows '${examples.labels[0]}' alone`,
      WHERE,
      "Add examples of something else.",
    );
  throw new InputError('the method "knn" has no head', WHERE, 'Use method: "logistic".');
}

/** How the features are made, as Python takes it. */
async function vectorsOf(host: TaskHost): Promise<Record<string, unknown>> {
  const { output, pooling } = featuresInfo(host);
  const own = (await runnerOf(host)).embedding?.(host);
  const tensor = own?.tensor ?? output;
  const { shape, dtype } = host.graph("model").plans[0]!.outputs.get(tensor)!;
  return {
    tensor,
    dtype,
    rank: shape.length,
    pooling: own?.pooling ?? pooling,
    masked: own !== undefined && own.pooling !== "none",
    unit: own ? own.normalize : host.task === "speaker-verification",
  };
}
