"""Every error Edgewise raises on purpose, one small family.

An error says three things: `what` is wrong, `where` (a file and a place in it, a node, a field),
and `remedy`, what the reader can do about it. `str(error)` joins them. web/src/shared/errors.ts has
the same names for pages.
"""

__all__ = [
    "Aborted",
    "EdgewiseError",
    "EngineError",
    "InputError",
    "MissingGradient",
    "ModelError",
    "OutOfMemory",
    "PackageError",
    "PlanError",
    "StorageError",
    "TokenizerError",
    "UnsupportedField",
    "UnsupportedOp",
]


def _short(text, most):
    """Messages quote names and shapes from files, and words of other libraries: one line of bounded
    length.
    """
    text = str(text).replace("\n", " ") if text else ""
    return text if len(text) <= most else f"{text[: most - 60]} ... {text[-50:]}"


class EdgewiseError(Exception):
    """Base of all.

    `what` is one sentence without the place; `where` and `remedy` may be empty strings.
    """

    def __init__(self, what, where="", remedy=""):
        self.what, self.where, self.remedy = (
            _short(what, 700),
            _short(where, 300),
            _short(remedy, 400),
        )
        super().__init__(self.what, self.where, self.remedy)

    def __str__(self):
        text = f"{self.where}: {self.what}" if self.where else self.what
        if not self.remedy:
            return text
        return f"{text}{'' if text.endswith(('.', '!', '?')) else '.'} {self.remedy}"


class ModelError(EdgewiseError):
    """An ONNX file is broken, truncated, or says something that cannot be."""


class UnsupportedOp(EdgewiseError):
    """A model uses an operator, an attribute or a type that Edgewise does not run; `where` names
    the node.
    """


class MissingGradient(UnsupportedOp):
    """A parameter cannot be trained, since an operator between it and the loss has no gradient;
    `where` names the node.
    """


class UnsupportedField(EdgewiseError):
    """A configuration field is unknown or not supported, and was set to something that would change
    the result.
    """


class TokenizerError(EdgewiseError):
    """A tokenizer file or a chat template is broken or missing, or the tokenizer library is not
    installed.
    """


class PackageError(EdgewiseError):
    """An .edge package is broken, truncated, or was made for another version."""


class PlanError(EdgewiseError):
    """The engine refused a plan."""


class EngineError(EdgewiseError):
    """The engine failed while it ran."""


class InputError(EdgewiseError, ValueError):
    """What the caller passed is wrong: a feed's name, shape or type, a token id, a parameter's
    range.
    """


class OutOfMemory(EdgewiseError, MemoryError):
    """The engine's memory is full."""


class StorageError(EdgewiseError):
    """The browser's storage, or a disk, is full, denied or in use; what was there before is still
    there.
    """


class Aborted(EdgewiseError):
    """The caller's signal stopped the work."""
