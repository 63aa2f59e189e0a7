// Real models beside the one that comes with a room: those that were made with the page (`make demo
// MODELS=real`), else one of the hub. One press loads it.

import type { ModelSource } from "edgewise";
import { keepModels, textAtHand } from "../models.ts";
import { $, megabytes } from "../page.ts";
import { pressed } from "./room.ts";

const LIST = "models.json";

/** A model of real/models.json, which web/demo/real/make.py writes. */
interface Made {
  name: string;
  room: string;
  title: string;
  licence: string;
  file: string;
  bytes: number;
}

/** A model of the hub. */
interface OfHub {
  id: string;
  title: string;
  licence: string;
}

/** The models that were made with the page; none in a page without them. */
export async function madeModels(room: string): Promise<Made[]> {
  try {
    const list = await textAtHand(new URL(`real/${LIST}`, location.href));
    const all = JSON.parse(list ?? "[]") as Made[];
    return all.filter((one) => one.room === room);
  } catch {
    return []; // it is none, or broke off
  }
}

/** Keeps the list, and small files of it, for visits without a network. */
export async function keepMade(files: readonly string[] = []): Promise<void> {
  // without space for copies they are fetched on each visit
  await keepModels([LIST, ...files].map((name) => `real/${name}`)).catch(() => undefined);
}

/** The address of a model that was made with the page. */
export const addressOf = ({ file }: Made): URL => new URL(`real/${file}`, location.href);

/**
 * Adds a button to the room's ways to choose a model, with name, size and licence.
 * @param load loads a model
 * @param hub taken where none was made with the page
 */
export async function offerReal(
  room: string,
  load: (model: ModelSource) => unknown,
  hub: OfHub,
): Promise<void> {
  const [made] = await madeModels(room);
  const button = document.createElement("button");
  button.type = "button";
  button.id = "real";
  button.textContent = made
    ? `${made.title}, ${megabytes(made.bytes)} (${made.licence})`
    : `${hub.title}, from the hub (${hub.licence})`;
  $("sample-again").before(button);
  pressed(button, async () => {
    await load(made ? addressOf(made) : hub.id);
    if (made) await keepMade();
  });
}
