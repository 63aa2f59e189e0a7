// The errors that Edgewise throws on purpose. The classes mirror python/edgewise/errors.py.

/** Base class of the errors that Edgewise throws on purpose. `name` is the class's name. */
export class EdgewiseError extends Error {
  /** What is wrong. */
  readonly what: string;
  /** Where it is wrong: a file and a position in it, a node, a field; may be empty. */
  readonly where: string;
  /** What to do about it; may be empty. */
  readonly remedy: string;

  constructor(what: string, where = "", remedy = "", options?: ErrorOptions) {
    const texts = new Texts(what, where, remedy);
    super(texts.joined, options);
    this.name = new.target.className;
    ({ what: this.what, where: this.where, remedy: this.remedy } = texts);
  }

  /** Name of the class, unaffected by minification. */
  static readonly className: string = "EdgewiseError";

  /** Also of the errors of arguments whose base class is one of JavaScript's. */
  static override [Symbol.hasInstance](value: unknown): boolean {
    // biome-ignore lint/complexity/noThisInStatic: subclasses inherit it, and ask for themselves
    return isInstance(this, value);
  }
}

function isInstance(type: unknown, value: unknown): boolean {
  return (
    Function.prototype[Symbol.hasInstance].call(type, value) ||
    ((type === InputError || type === EdgewiseError) &&
      (value instanceof InputTypeError || value instanceof InputRangeError))
  );
}

/** An ONNX file is damaged, truncated or invalid. */
export class ModelError extends EdgewiseError {
  static override readonly className = "ModelError";
}
/** A model uses an unsupported operator, attribute or type; `where` names the node. */
export class UnsupportedOp extends EdgewiseError {
  static override readonly className: string = "UnsupportedOp";
}
/**
 * A parameter cannot be trained, since an operator between it and the loss has no gradient; `where`
 * names the node.
 */
export class MissingGradient extends UnsupportedOp {
  static override readonly className = "MissingGradient";
}
/** A configuration field is unknown or unsupported, and its value would change the result. */
export class UnsupportedField extends EdgewiseError {
  static override readonly className = "UnsupportedField";
}
/** A tokenizer file or a chat template is missing or invalid. */
export class TokenizerError extends EdgewiseError {
  static override readonly className = "TokenizerError";
}
/** An .edge package is damaged, truncated, or was made for another version. */
export class PackageError extends EdgewiseError {
  static override readonly className = "PackageError";
}
/** The engine rejected a plan. */
export class PlanError extends EdgewiseError {
  static override readonly className = "PlanError";
}
/** The engine failed at run time. */
export class EngineError extends EdgewiseError {
  static override readonly className = "EngineError";
}
/** An argument is invalid: name, shape or type of an input, a token id, a parameter's range. */
export class InputError extends EdgewiseError {
  static override readonly className: string = "InputError";
}
/** A request to an API of OpenAI's form cannot be answered. */
export class RequestError extends InputError {
  static override readonly className = "RequestError";

  /**
   * @param what what is wrong, and what to do
   * @param param the field that is wrong; may be empty
   * @param code a word for programs; may be empty
   */
  constructor(
    what: string,
    readonly param = "",
    readonly code = "",
  ) {
    super(what, param);
  }
}
/**
 * An {@link InputError} that is a TypeError as well, as ONNX Runtime Web throws: an argument is of
 * a type that is not taken. `instanceof` holds for both, and `name` is "TypeError".
 */
export class InputTypeError extends TypeError implements InputError {
  readonly what: string;
  readonly where: string;
  readonly remedy: string;

  constructor(what: string, where = "", remedy = "", options?: ErrorOptions) {
    const texts = new Texts(what, where, remedy);
    super(texts.joined, options);
    ({ what: this.what, where: this.where, remedy: this.remedy } = texts);
  }

  static readonly className = "InputTypeError";
}
/**
 * An {@link InputError} that is a RangeError as well, as ONNX Runtime Web throws: a number, or a
 * name of several, is none of those that are taken. `name` is "RangeError".
 */
export class InputRangeError extends RangeError implements InputError {
  readonly what: string;
  readonly where: string;
  readonly remedy: string;

  constructor(what: string, where = "", remedy = "", options?: ErrorOptions) {
    const texts = new Texts(what, where, remedy);
    super(texts.joined, options);
    ({ what: this.what, where: this.where, remedy: this.remedy } = texts);
  }

  static readonly className = "InputRangeError";
}
/** Memory is exhausted. */
export class OutOfMemory extends EdgewiseError {
  static override readonly className = "OutOfMemory";
}
/**
 * The browser's storage, or a disk, is full, not permitted or in use. Previously stored data is
 * intact.
 */
export class StorageError extends EdgewiseError {
  static override readonly className = "StorageError";
}
/** The caller's signal cancelled the work. */
export class Aborted extends EdgewiseError {
  static override readonly className = "Aborted";
  /** Token ids generated so far, prompt included, one list per sequence. */
  sequences: number[][] = [];
}

/** The texts of an error, and the message that they are in. */
class Texts {
  readonly what: string;
  readonly where: string;
  readonly remedy: string;

  constructor(what: string, where: string, remedy: string) {
    this.what = shortened(what, 700);
    this.where = shortened(where, 300);
    this.remedy = shortened(remedy, 400);
  }

  get joined(): string {
    const { what, where, remedy } = this;
    const text = where ? `${where}: ${what}` : what;
    return remedy ? `${text}${/[.!?]$/.test(text) ? "" : "."} ${remedy}` : text;
  }
}

/** What would change a terminal, or the order of a text. */
const CONTROLS = /[\p{Cc}\u202a-\u202e\u2066-\u2069]/gu;

/** Of a text that was cut: a part of a word, with the spaces beside it. */
const CUT_END = / +[^ ]{0,30}$/;
const CUT_START = /^[^ ]{0,30} +/;

/**
 * On one line of at most `most` characters, without controls: errors quote names from files. A
 * longer one is cut in the middle, at spaces, where there are some nearby.
 */
function shortened(text: string, most: number): string {
  const line = text.replaceAll("\n", " ").replace(CONTROLS, "\ufffd");
  if (line.length <= most) return line;
  const [first, last] = [line.slice(0, most - 60), line.slice(-50)];
  return `${first.replace(CUT_END, "")} ... ${last.replace(CUT_START, "")}`;
}
