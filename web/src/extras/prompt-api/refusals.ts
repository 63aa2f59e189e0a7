// Errors of the web, and the check of a name.

/** An error of the web. */
export const domError = (what: string, name: string): DOMException => new DOMException(what, name);

/** It is refused, as what the model cannot do. */
export const notSupported = (what: string) => domError(what, "NotSupportedError");

/** @throws TypeError if it is none of the names */
export function oneOf(value: unknown, names: readonly string[], where: string): string {
  const text = String(value);
  if (names.includes(text)) return text;
  throw new TypeError(`${where} is '${text.slice(0, 80)}', not one of ${names.join(", ")}`);
}
