// Pairs of pictures with questions and answers: how they are read, and the features of a batch.
// Mirrors python/edgewise/host/training/picture_pairs.py.

import { FEATURES, POSITIONS, REACH, SELECTED } from "../../../gen/manifest.ts";
import { type Ask, asks_of, PICTURES } from "../../../logic/multimodal/asking.ts";
import { positions_of_run, reach_of_run, rows_of_run } from "../../../logic/multimodal/prompt.ts";
import { asked_about } from "../../../logic/multimodal/questions.ts";
import { ends_of } from "../../../logic/training/targets.ts";
import type { TaskAsk, TaskPicture } from "../../../protocol/tasks.ts";
import type { Asked, FeedFeatures } from "../../model/model.ts";
import type { Ending, TaskHost } from "../host.ts";
import { Options } from "../options.ts";
import type { TaskRunner } from "../runner.ts";

/** Options of calls that say how a prompt is written. */
const OPTIONS = ["add_special_tokens"];

interface Learns {
  learned(given: TaskAsk, answer: string): Promise<Omit<Asked, "ends">>;
}

/** Makes the call of a question. */
type Make = (of: { host: TaskHost; options: Options; ask: Ask; ending: Ending }) => Learns;

/** See runner.ts. */
export function pairsOf(make: Make): NonNullable<TaskRunner["pairs"]> {
  return {
    kind: "pictures",
    prepare(host, given) {
      const options = new Options(given, OPTIONS);
      const { generation_config, config } = host.needLanguage();
      const eos = { eos_token_id: host.needTokenizer().id("eos_token") ?? null };
      const ends = ends_of([generation_config, config, eos]);
      return async ({ source, prompt, target }, ending) => {
        const pictures: TaskPicture[] = [];
        // one that is read is closed, and runs may read it again
        for (const one of source as TaskPicture[])
          pictures.push(one instanceof ImageBitmap ? await createImageBitmap(one) : one);
        const text = asked_about(
          pictures.map((_, picture) => ({ picture })),
          prompt,
        );
        const [[ask]] = asks_of(null, text, PICTURES);
        const call = make({ host, options, ask: ask!, ending });
        const question = { images: null, text, pictures, sounds: [] };
        return { ...(await call.learned(question, target)), ends };
      };
    },
    feeds,
  };
}

/** The features of the pictures of a batch at their tokens; positions, and what tokens see. */
const feeds: FeedFeatures = ({ batch, sequence, plans }, features) => {
  const { slots } = plans.get("train")!;
  const made: Record<string, Uint8Array> = {};
  for (const { name, bytes } of slots)
    if ([FEATURES, SELECTED, POSITIONS, REACH].includes(name)) made[name] = new Uint8Array(bytes);
  const data = made[FEATURES]!;
  const size = data.length / (batch * sequence);
  const low = (name: string) => made[name] && new Uint32Array(made[name].buffer); // of int64
  const [chosen, places, seen] = [SELECTED, POSITIONS, REACH].map(low);
  for (let i = 0; i < batch; i++) {
    const { prompt, parts, counts } = features[i] ?? features[0]!; // rows without labels, too
    const row = i * sequence;
    for (const { at, part, first, count } of rows_of_run(prompt.places, counts, 0, sequence)) {
      const rows = parts[part]!.subarray(size * first, size * (first + count));
      data.set(rows, size * (row + at));
      for (let k = at; k < at + count; k++) chosen![2 * (row + k)] = 1;
    }
    if (places)
      positions_of_run(prompt.positions, 0, sequence).forEach((numbers, axis) => {
        for (const [k, n] of numbers.entries()) places[2 * ((axis * batch + i) * sequence + k)] = n;
      });
    if (seen)
      reach_of_run(prompt.reach, 0, sequence).forEach((n, k) => {
        seen[2 * (row + k)] = n;
      });
  }
  return made;
};
