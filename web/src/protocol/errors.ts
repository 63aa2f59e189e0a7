// Errors as plain data: class name, texts and fields, so that they can be sent between realms.

import * as errors from "../shared/errors.ts";

/** A serialized error; `name`: the name of its class. */
export interface PlainError {
  name: string;
  what: string;
  where: string;
  remedy: string;
  stack: string;
  fields: Record<string, unknown>;
}

type ErrorClass = new (what: string, where?: string, remedy?: string) => errors.EdgewiseError;

/** Serializes an error. Errors that are not Edgewise's become EngineError with their message. */
export function plainError(e: unknown): PlainError {
  const error = e instanceof Error ? e : new Error(String(e));
  const fields: Record<string, unknown> = {};
  if (error instanceof errors.EdgewiseError) {
    for (const [key, value] of Object.entries(error))
      if (
        !["name", "what", "where", "remedy", "message", "stack", "cause"].includes(key) &&
        cloneable(value)
      )
        fields[key] = value;
    return {
      name: (error.constructor as typeof errors.EdgewiseError).className,
      what: error.what,
      where: error.where,
      remedy: error.remedy,
      stack: error.stack ?? "",
      fields,
    };
  }
  return {
    name: "EngineError",
    what: `${error.name}: ${error.message}`,
    where: "",
    remedy: "This is a bug in Edgewise; please report it.",
    stack: error.stack ?? "",
    fields,
  };
}

/** Restores an error from {@link plainError}; its stack in the worker becomes `workerStack`. */
export function makeError(plain: PlainError): errors.EdgewiseError {
  const found: unknown = (errors as Record<string, unknown>)[plain.name];
  const type = (
    typeof found === "function" && "className" in found ? found : errors.EdgewiseError
  ) as ErrorClass;
  const error = new type(plain.what, plain.where, plain.remedy);
  Object.assign(error, plain.fields);
  if (plain.stack)
    Object.defineProperty(error, "workerStack", { value: plain.stack, enumerable: false });
  return error;
}

function cloneable(value: unknown): boolean {
  try {
    structuredClone(value);
    return true;
  } catch {
    return false;
  }
}
