// Every error Edgewise raises on purpose, with the names of python/edgewise/errors.py. `what` is
// wrong, `where` is it (a file and a place in it, a node, a field), and `remedy` says what the
// reader can do.

/** Every error that Edgewise throws on purpose; `name` is the class's. */
export class EdgewiseError extends Error {
  /** What is wrong. */
  readonly what: string;
  /** Where: a file and a place in it, a node, a field; may be empty. */
  readonly where: string;
  /** What the reader can do; may be empty. */
  readonly remedy: string;

  constructor(what: string, where = "", remedy = "", options?: ErrorOptions) {
    super(words(what, where, remedy), options);
    this.name = new.target.className;
    this.what = what;
    this.where = where;
    this.remedy = remedy;
  }

  /** The class's name, which minifying does not change. */
  static readonly className: string = "EdgewiseError";
}

/** An ONNX file is broken, truncated, or says something that cannot be. */
export class ModelError extends EdgewiseError {
  static override readonly className = "ModelError";
}
/**
 * A model uses an operator, an attribute or a type that Edgewise does not run; `where` names the
 * node.
 */
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
/**
 * A configuration field is unknown or not supported, and was set to something that would change the
 * result.
 */
export class UnsupportedField extends EdgewiseError {
  static override readonly className = "UnsupportedField";
}
/** A tokenizer file or a chat template is broken or missing. */
export class TokenizerError extends EdgewiseError {
  static override readonly className = "TokenizerError";
}
/** An .edge package is broken, truncated, or was made for another version. */
export class PackageError extends EdgewiseError {
  static override readonly className = "PackageError";
}
/** The engine refused a plan. */
export class PlanError extends EdgewiseError {
  static override readonly className = "PlanError";
}
/** The engine failed while it ran. */
export class EngineError extends EdgewiseError {
  static override readonly className = "EngineError";
}
/**
 * What the caller passed is wrong: an input's name, shape or type, a token id, a parameter's range.
 */
export class InputError extends EdgewiseError {
  static override readonly className = "InputError";
}
/** The engine's memory is full. */
export class OutOfMemory extends EdgewiseError {
  static override readonly className = "OutOfMemory";
}
/**
 * The browser's storage, or a disk, is full, denied or in use; what was there before is still
 * there.
 */
export class StorageError extends EdgewiseError {
  static override readonly className = "StorageError";
}
/**
 * The caller's signal stopped the work. `sequences`: the token ids there were, where text was being
 * generated.
 */
export class Aborted extends EdgewiseError {
  static override readonly className = "Aborted";
  /** Token ids, prompt included, one list per sequence. */
  sequences: number[][] = [];
}

function words(what: string, where: string, remedy: string): string {
  const text = where ? `${where}: ${what}` : what;
  return remedy ? `${text}${/[.!?]$/.test(text) ? "" : "."} ${remedy}` : text;
}
