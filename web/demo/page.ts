// What both halves of the page use: its elements, and numbers in words.

export const $ = <T extends HTMLElement = HTMLElement>(id: string): T => document.getElementById(id) as T;
export const input = (id: string): HTMLInputElement => $<HTMLInputElement>(id);

export const number = (value: number, digits = 0): string => value.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits });
export const megabytes = (bytes: number): string => (bytes < 1e5 ? `${number(Math.ceil(bytes / 1e3))} kB` : `${number(bytes / 1e6, bytes < 1e7 ? 1 : 0)} MB`);
export const seconds = (ms: number): string => (ms < 1000 ? `${number(ms)} ms` : `${number(ms / 1000, 1)} s`);
