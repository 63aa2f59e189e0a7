"""Chat templates in CPython: jinja2, an optional dependency, in a sandbox with a budget."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from ....errors import OutOfMemory, TokenizerError
from ....logic.text.limits import COPY

SAFE = (3, 1, 6)  # of jinja2: the first version whose sandbox has no known hole


def template(source: str, where: str) -> Callable[[dict[str, Any]], str]:
    """A chat template.

    Args:
        source: the template's text, whose length was checked.
        where: for messages.

    Returns:
        function({variable: value}) that renders the template

    Raises:
        TokenizerError: the template is invalid, or jinja2 is missing or too old. Raised by the
            function, too: the template fails, rejects the messages or exceeds its budget.
        OutOfMemory: there is too little memory.
    """
    return functools.partial(_rendered, _compiled(source, where), where)


def _compiled(source: str, where: str) -> Any:
    try:
        import jinja2
    except ImportError:
        raise TokenizerError(
            "chat templates need `jinja2`, which is not installed",
            where,
            "pip install edgewise[text]",
        ) from None
    version = getattr(jinja2, "__version__", "")  # later versions may have none
    if version and tuple(map(int, re.findall(r"\d+", version)[:3])) < SAFE:
        raise TokenizerError(
            f"jinja2 {version} lets templates read what is in Python's memory",
            where,
            f"Update it: pip install 'jinja2>={'.'.join(map(str, SAFE))}'.",
        )
    try:
        return _environment().from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise TokenizerError(
            f"the chat template is invalid: {error.message}", _place(where, error), COPY
        ) from None
    except MemoryError:
        raise OutOfMemory("out of memory in the chat template", where, COPY) from None
    # errors of Python in the program that jinja2 generates, such as nesting that is too deep
    except Exception as error:
        raise TokenizerError(
            f"the chat template is invalid: {type(error).__name__}: {_words(error)}", where, COPY
        ) from None


def _rendered(compiled: Any, where: str, variables: dict[str, Any]) -> str:
    import jinja2

    from .budget import TemplateLimit, budgeted

    try:
        with budgeted():
            return str(compiled.render(variables))
    except TemplateLimit as error:
        raise TokenizerError(f"the chat template exceeds a limit: {error}", where, COPY) from None
    except jinja2.TemplateError as error:
        raise TokenizerError(
            f"the chat template refused the messages: {str(error.message or error)[:1000]}",
            _place(where, error),
            "Check the roles and their order; each model's template has its own rules.",
        ) from None
    except MemoryError:
        raise OutOfMemory("out of memory in the chat template", where, COPY) from None
    except Exception as error:  # templates can raise anything
        raise TokenizerError(
            f"the chat template failed: {type(error).__name__}: {_words(error)}",
            where,
            "Check that every message has the fields the template uses.",
        ) from None


@functools.lru_cache(maxsize=1)
def _environment() -> Any:
    from .sandbox import TemplateEnvironment

    return TemplateEnvironment()


def _words(error: BaseException) -> str:
    """The message of an exception; those of the caller's objects may raise in __str__."""
    try:
        return str(error)[:300]
    except Exception:
        return "without words"


def _place(where: str, error: BaseException) -> str:
    line = getattr(error, "lineno", None)
    return f"{where}, line {line}" if line else where
