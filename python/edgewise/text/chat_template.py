"""Chat templates, which turn messages into the prompt format of a model."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import OutOfMemory, TokenizerError
from .limits import LIMITS

COPY = "Copy the tokenizer's files again from the model they belong to."
SAFE = (3, 1, 6)  # of jinja2: the first version whose sandbox has no known hole
SPACES = re.compile(r"\s{100,}")


class ChatTemplate:
    """A Jinja chat template, rendered in a sandbox with the functions of
    transformers/utils/chat_template_utils.py and a budget of steps, characters and seconds
    (limits.py).

    Args:
        source: the template's text.
        where: for messages.

    Raises:
        TokenizerError: source is not text, longer than LIMITS["template_chars"], with more spaces
            in a row than LIMITS["template_spaces"], or has syntax errors.
    """

    def __init__(self, source: str, where: str = "chat template") -> None:
        self.where = where
        if not isinstance(source, str):
            raise TokenizerError(
                f"the chat template is a {type(source).__name__}, not text", where, COPY
            )
        if len(source) > LIMITS["template_chars"]:
            raise TokenizerError(
                f"the chat template has {len(source)} characters, at most"
                f" {LIMITS['template_chars']} are read",
                where,
                COPY,
            )
        spaces = max(map(len, SPACES.findall(source)), default=0)
        if spaces > LIMITS["template_spaces"]:
            raise TokenizerError(
                f"the chat template has {spaces} spaces and line ends in a row, at most"
                f" {LIMITS['template_spaces']} are read",
                where,
                COPY,
            )
        self.template = _compile(source, where)

    def __call__(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Any] | None = None,
        documents: Sequence[Any] | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        **variables: Any,
    ) -> str:
        """Renders the template.

        Args:
            messages: [{"role": ..., "content": ...}].
            tools, documents, variables: variables of the template.
            add_generation_prompt: whether the beginning of an answer follows.
            continue_final_message: leave the last message open, to be continued.

        Returns:
            The prompt.

        Raises:
            TokenizerError: the template fails, rejects the messages or exceeds its budget.
            OutOfMemory: there is too little memory.
        """
        mark = "CONTINUE_FINAL_MESSAGE_TAG "
        own = [dict(message) for message in messages]
        if continue_final_message:
            if add_generation_prompt:
                raise TokenizerError(
                    "continue_final_message and add_generation_prompt exclude each other",
                    self.where,
                    "Pass one of them.",
                )
            final: Any = own[-1].get("content") if own else None
            if not isinstance(final, str):
                raise TokenizerError(
                    "continue_final_message needs a last message of text",
                    self.where,
                    "Give the last message a content of text.",
                )
            own[-1]["content"] = final + mark
        text = self._render(
            {
                **variables,
                "messages": own,
                "tools": tools,
                "documents": documents,
                "add_generation_prompt": add_generation_prompt,
            }
        )
        if continue_final_message:
            end = text.rfind(mark.strip())
            if end < 0 or final.strip() not in text:
                raise TokenizerError(
                    "the chat template drops the message that is to be continued",
                    self.where,
                    "Pass add_generation_prompt instead, or text.",
                )
            text = text[:end] if text[end : end + len(mark)] == mark else text[:end].rstrip()
        return text

    def _render(self, variables: dict[str, Any]) -> str:
        import jinja2

        from .templates.budget import TemplateLimit, budgeted

        try:
            with budgeted():
                return self.template.render(variables)
        except TemplateLimit as error:
            raise TokenizerError(
                f"the chat template exceeds a limit: {error}", self.where, COPY
            ) from None
        except jinja2.TemplateError as error:
            raise TokenizerError(
                f"the chat template refused the messages: {str(error.message or error)[:1000]}",
                _place(self.where, error),
                "Check the roles and their order; each model's template has its own rules.",
            ) from None
        except MemoryError:
            raise OutOfMemory("out of memory in the chat template", self.where, COPY) from None
        except Exception as error:  # templates can raise anything
            raise TokenizerError(
                f"the chat template failed: {type(error).__name__}: {_words(error)}",
                self.where,
                "Check that every message has the fields the template uses.",
            ) from None


@functools.lru_cache(maxsize=16)
def _compile(source: str, where: str) -> Any:
    try:
        import jinja2
    except ImportError:
        raise TokenizerError(
            "chat templates need `jinja2`, which is not installed",
            where,
            "Install edgewise[text]; in Pyodide: await micropip.install('jinja2').",
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


@functools.lru_cache(maxsize=1)
def _environment() -> Any:
    from .templates.sandbox import TemplateEnvironment

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
