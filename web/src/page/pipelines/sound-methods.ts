// What pipelines of sound have beside their call.

import { InputError } from "../../shared/errors.ts";
import type { Client } from "../client.ts";
import { streamer } from "./sound-streams.ts";
import type { SoundInput } from "./sounds.ts";
import type { CallOptions, SpeakerScore } from "./types.ts";

type Options = Record<string, unknown>;

/**
 * The members of a pipeline, and what is added to the options of each call.
 * @param run calls the pipeline
 */
export function soundMethods(
  client: Client,
  task: string,
  run: (input: unknown, options: Options) => Promise<unknown>,
): { members: object; options: (given: Options) => Options } {
  const same = (given: Options): Options => given;
  const speech = task === "automatic-speech-recognition";
  if (speech || task === "voice-activity-detection")
    return {
      members: { stream: streamer((...of) => client.call("task_feed", ...of), speech) },
      options: same,
    };
  if (task !== "speaker-verification") return { members: {}, options: same };
  const voices: Record<string, number[]> = {};
  const members = {
    voices,
    async enrol(
      name: string,
      recordings: SoundInput | readonly SoundInput[],
      options: CallOptions = {},
    ): Promise<number[]> {
      const sounds: readonly unknown[] = Array.isArray(recordings) ? recordings : [recordings];
      if (!sounds.length)
        throw new InputError("there is no recording", "enrol", "Give one or more.");
      // the n-th result is the mean of the first n recordings
      const means = (await run(sounds, { ...options, enrol: true })) as number[][];
      const mean = means.at(-1)!;
      members.voices[name] = mean;
      return mean;
    },
    async verify(
      name: string,
      sound: SoundInput,
      options: CallOptions = {},
    ): Promise<SpeakerScore> {
      const given = { ...options, name, voices: members.voices };
      return ((await run(sound, given)) as SpeakerScore[])[0]!;
    },
  };
  return { members, options: (given) => ({ ...given, voices: members.voices }) };
}
