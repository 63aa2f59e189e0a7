// The text files of a model at an address.

import { ModelError } from "../../../shared/errors.ts";
import { NotFound } from "../../../shared/files/connection.ts";
import { readAll } from "../../../shared/files/stream.ts";
import { KeptSource } from "../../files/kept-source.ts";
import { checkGit } from "../../files/listing.ts";
import { parseConfig } from "../../text/tokenizer.ts";
import type { Job, Texts } from "../job.ts";
import { notThere } from "../not-there.ts";
import { GENAI_CONFIG } from "../packages.ts";
import { CHATS, folderTexts } from "./hub.ts";

/**
 * Downloads the text files of a folder. Missing ones are reported later, where required.
 * @param names their paths; default: the texts that the task needs
 */
export async function fetchTexts(
  job: Job,
  folder: string,
  names: readonly string[] = folderTexts(job.request.task),
): Promise<Texts> {
  const texts: Texts = new Map();
  const get = async (name: string) => {
    const url = new URL(name, folder).href;
    const known = job.downloads!.known(url);
    if (known === null) return; // the hub does not have it
    const source = job.http(url);
    try {
      const bytes = await readAll(source, 256 << 20);
      await checkGit(bytes, known, url);
      texts.set(name, new TextDecoder().decode(bytes));
    } catch (e) {
      if (e instanceof ModelError && source instanceof KeptSource) await source.forget();
      if (!(e instanceof NotFound)) throw e;
      if (![403, 404, 410].includes(e.status)) throw notThere(e);
    }
  };
  await Promise.all(names.map(get));
  const config = texts.get("tokenizer_config.json");
  // Since 2025 templates may have their own file, which is requested only if the config has no
  // chat_template field (null means that there is none).
  if (
    config !== undefined &&
    ["text-generation", ...CHATS].includes(job.request.task) &&
    !("chat_template" in parseConfig(config, new URL("tokenizer_config.json", folder).href))
  )
    await get("chat_template.jinja");
  // Processors of models that see or hear had theirs as an object until 2025.
  if (CHATS.includes(job.request.task) && !texts.has("chat_template.jinja"))
    await get("chat_template.json");
  // Of models that see videos.
  if (CHATS.includes(job.request.task) && /"video_token_id"/.test(texts.get("config.json") ?? ""))
    await get("video_preprocessor_config.json");
  // ONNX Runtime GenAI's files have the sizes of states and the special tokens there.
  if (names.includes("config.json") && !texts.has("config.json"))
    if (job.request.task === "text-generation") await get(GENAI_CONFIG);
  return texts;
}
