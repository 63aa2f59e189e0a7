"""Chat templates: messages to the text that a model was trained to answer."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import OutOfMemory, TokenizerError
from .limits import LIMITS

COPY = "Copy the tokenizer's files again from the model they belong to."


class ChatTemplate:
    """A Jinja chat template, rendered in a sandbox with the functions that transformers gives it
    (utils/chat_template_utils.py).

    A rendering has a budget of steps, characters and seconds (limits.py); what a template raises is
    a TokenizerError.
    """

    def __init__(self, source: str, where: str = "chat template") -> None:
        """source: the template's text.

        Raises TokenizerError: it is no text, longer than LIMITS["template_chars"], or no template.
        """
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
        """-> text. continue_final_message: leave the last message open for the model to go on with.

        Raises TokenizerError.
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

        from .template_sandbox import TemplateLimit, budgeted

        try:
            with budgeted():
                return self.template.render(variables)
        except TemplateLimit as error:
            raise TokenizerError(
                f"the chat template asks for too much: {error}", self.where, COPY
            ) from None
        except jinja2.TemplateError as error:
            raise TokenizerError(
                f"the chat template refused the messages: {error.message or error}",
                _place(self.where, error),
                "Check the roles and their order; each model's template has its own rules.",
            ) from None
        except MemoryError:
            raise OutOfMemory(
                "the chat template needs more memory than there is", self.where, COPY
            ) from None
        except (
            Exception
        ) as error:  # a template is a program from elsewhere: whatever it raises is about it
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
    try:
        return _environment().from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise TokenizerError(
            f"the chat template is broken: {error.message}", _place(where, error), COPY
        ) from None
    except MemoryError:
        raise OutOfMemory(
            "the chat template needs more memory than there is", where, COPY
        ) from None
    # what Python says of the program that jinja2 makes of it: nested too deeply, a name that is
    # none
    except Exception as error:
        raise TokenizerError(
            f"the chat template is broken: {type(error).__name__}: {_words(error)}", where, COPY
        ) from None


@functools.lru_cache(maxsize=1)
def _environment() -> Any:
    from .template_sandbox import TemplateEnvironment

    return TemplateEnvironment()


def _words(error: BaseException) -> str:
    """What an exception says; those of a stranger's objects may not be able to."""
    try:
        return str(error)[:300]
    except Exception:
        return "without words"


def _place(where: str, error: BaseException) -> str:
    line = getattr(error, "lineno", None)
    return f"{where}, line {line}" if line else where
