// Models that speak: the tensors that their graphs are fed for a part of a sentence. What they read
// is decided by logic/speech/voices.py.

import type { SpeechFields } from "../../../gen/schema.ts";
import { scales_of, speaker_number, voice_name, WIDTH } from "../../../logic/speech/voices.ts";
import type { TaskTensor } from "../../../protocol/tasks.ts";
import { InputError, PackageError } from "../../../shared/errors.ts";
import type { Ending, TaskHost } from "../host.ts";
import type { Options } from "../options.ts";

type Feeds = Record<string, TaskTensor>;

const floats = (values: ArrayLike<number>, dims: number[]): TaskTensor => ({
  type: "float32",
  dims,
  data: new Uint8Array(Float32Array.from(values).buffer),
});

/** A tensor of int64. */
export const integers = (values: readonly number[], dims: number[]): TaskTensor => ({
  type: "int64",
  dims,
  data: new Uint8Array(BigInt64Array.from(values, BigInt).buffer),
});

/**
 * An output of a program.
 * @throws PackageError if it is not there
 */
export function outputOf(
  made: Readonly<Record<string, TaskTensor>>,
  name: string,
  where: string,
): TaskTensor {
  if (Object.hasOwn(made, name)) return made[name]!;
  throw new PackageError(
    `its program has no output '${name}'`,
    where,
    "Build it again with this version: `edgewise build --task`.",
  );
}

/** Feeds of a number for each text, with the rank that the graph declares. */
function oneNumber(host: TaskHost, name: string, value: number): Feeds {
  const program = host.has("text") ? "text" : "model";
  const declared = host.graph(program).inputs.find((i) => i.name === name)?.shape ?? [];
  return { [name]: integers([value], declared.length ? [1] : []) };
}

/**
 * The inputs other than the tokens, for so many of these.
 * @throws InputError if an option is not valid
 */
export function speakerFeeds(
  host: TaskHost,
  d: SpeechFields,
  { given }: Options,
): (count: number, ending: Ending) => Promise<Feeds> {
  if (d.type === "kokoro") return kokoro(host, d, given);
  const number = d.speakers ? speaker_number(d, given) : 0;
  const speaker = (name: string) => (d.speakers ? oneNumber(host, name, number) : {});
  if (d.type === "vits") return async () => speaker("speaker_id");
  const scales = scales_of(d, given);
  return async (count) => ({
    input_lengths: integers([count], [1]),
    scales: floats(scales, [3]),
    ...speaker("sid"),
  });
}

function kokoro(
  host: TaskHost,
  { voices = {} }: SpeechFields,
  { speaker_embeddings: own, voice: named, speed = 1 }: Readonly<Record<string, unknown>>,
): (count: number, ending: Ending) => Promise<Feeds> {
  if (own !== undefined && named !== undefined)
    throw new InputError(
      "there are two voices",
      "speaker_embeddings",
      "Give either `voice` or `speaker_embeddings`.",
    );
  const given = own ?? named;
  const table = ArrayBuffer.isView(given) ? (given as Float32Array) : undefined;
  if (table && (!(table instanceof Float32Array) || !table.length || table.length % WIDTH))
    throw new InputError(
      "they are not styles of 256 numbers of float32",
      "speaker_embeddings",
      "Give a Float32Array of [rows, 1, 256].",
    );
  const name = given === undefined ? null : String(given);
  const [first, rows] = table ? [0, 0] : voices[voice_name(Object.keys(voices), name)]!;
  return async (count, ending) => {
    const tokens = count - 2;
    let style: TaskTensor;
    if (table) {
      const at = Math.min(tokens, table.length / WIDTH - 1) * WIDTH;
      style = floats(table.subarray(at, at + WIDTH), [1, WIDTH]);
    } else {
      const row = integers([first + Math.min(tokens, rows - 1)], [1]);
      style = outputOf(await host.run("style", { row }, ending), "style", host.task);
    }
    return { style, speed: floats([speed as number], [1]) };
  };
}
