// Helpers of both halves of the page: elements, formatting of numbers, display of errors.

import { EdgewiseError } from "edgewise";

export const $ = <T extends HTMLElement = HTMLElement>(id: string): T =>
  document.getElementById(id) as T;
export const input = (id: string): HTMLInputElement => $<HTMLInputElement>(id);

// on a telephone not all links to rooms are in view
const here = document.querySelector<HTMLElement>(".rooms [aria-current]");
const rooms = here?.parentElement;
if (rooms)
  rooms.scrollLeft = here.offsetLeft + here.offsetWidth - rooms.offsetLeft - rooms.clientWidth;

/** Shows an element in the place of another one. The focus goes with it. */
export function swap(shown: string, hidden: string): void {
  const focused = document.activeElement === $(hidden);
  $(shown).hidden = false;
  $(hidden).hidden = true;
  if (focused) $(shown).focus();
}

export const number = (value: number, digits = 0): string =>
  value.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits });
export const megabytes = (bytes: number): string =>
  bytes < 1e5
    ? `${number(Math.ceil(bytes / 1e3))} kB`
    : `${number(bytes / 1e6, bytes < 1e7 ? 1 : 0)} MB`;
export const seconds = (ms: number): string =>
  ms < 1000 ? `${number(ms)} ms` : `${number(ms / 1000, 1)} s`;

/** Whether an error is of a file beside the library, which has classes of its own. */
const isOfPart = (e: unknown): e is EdgewiseError =>
  e instanceof Error && "what" in e && "where" in e && "remedy" in e;

/** Shows an error in the box of this id. */
export function tellError(id: string, e: unknown): void {
  const ours = e instanceof EdgewiseError || isOfPart(e);
  const words = ours
    ? e.what
    : `something went wrong: ${e instanceof Error ? e.message : String(e)}`;
  $(id).hidden = false;
  $(id).dataset.name = e instanceof Error ? e.name : "";
  $(`${id}-what`).textContent =
    words.charAt(0).toUpperCase() + words.slice(1) + (/[.!?]$/.test(words) ? "" : ".");
  $(`${id}-where`).textContent = ours ? e.where : "";
  $(`${id}-remedy`).textContent = ours ? e.remedy : "";
}
