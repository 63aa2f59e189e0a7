"""Chat templates, which turn messages into the prompt format of a model."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import TokenizerError
from ...logic.text.chat import cut_open, final_text, left_open
from ...logic.text.limits import COPY
from ...logic.text.template_limits import check_template


class ChatTemplate:
    """A Jinja chat template with the functions of transformers/utils/chat_template_utils.py and a
    budget of steps, characters and seconds (limits.py).

    In CPython jinja2 renders it in a sandbox (templates/), in Pyodide the JavaScript library of
    pages (browser.py).

    Args:
        source: the template's text.
        where: for messages.

    Raises:
        TokenizerError: source is not text, longer than LIMITS.template_chars, with more spaces
            in a row than LIMITS.template_spaces, or has syntax errors.
    """

    def __init__(self, source: str, where: str = "chat template") -> None:
        self.where = where
        if not isinstance(source, str):
            raise TokenizerError(
                f"the chat template is a {type(source).__name__}, not text", where, COPY
            )
        check_template(source, where)
        self._rendered = _compiled(source, where)

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
        own = [dict(message) for message in messages]
        final = ""
        if continue_final_message:
            final = final_text(own, add_generation_prompt, self.where)
            own = left_open(own, final)
        text = self._rendered(
            {
                **variables,
                "messages": own,
                "tools": tools,
                "documents": documents,
                "add_generation_prompt": add_generation_prompt,
            }
        )
        return cut_open(text, final, self.where) if continue_final_message else text


@functools.lru_cache(maxsize=16)
def _compiled(source: str, where: str) -> Callable[[dict[str, Any]], str]:
    """function({variable: value}) that renders a template. Both raise TokenizerError."""
    if sys.platform == "emscripten":
        from .browser import template
    else:
        from .templates.rendering import template
    return template(source, where)
