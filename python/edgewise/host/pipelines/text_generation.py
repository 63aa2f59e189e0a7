"""Text generation from text or chat messages. Mirrors transformers/pipelines/text_generation.py."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ...errors import InputError, TokenizerError, memory_in_words, wrong_type
from ...logic.generation.config import Configuration
from ...logic.generation.draft import check_tokenizers
from ...logic.generation.prefix import common, continuations
from ...logic.generation.run import Output
from ...logic.generation.text import (
    DEFAULTS,
    continues,
    defaults_of_call,
    inputs_of,
    is_ids,
    records_of,
    task_defaults,
)
from ...logic.generation.window import Encode, Truncation, cut, fitting_chat, truncation_of
from ...logic.grammar.partial import ParsedText, is_json, parsed
from ...logic.options import check_known
from ...logic.tools.answers import Answers, check_chat
from ...logic.tools.choice import check_given, chosen_tools
from ..arguments import Described, check_device, options_of
from ..drive import drive
from ..hub import tokenizer_path
from ..profile import Profile
from ..text import GenerateOutput, GenerationConfig, TextStreamer, Tokenizer, generate
from ..text.generate import model_defaults
from ..text.streamers import Streamers
from ..text.tool_loop import run_tools
from ..text.tools import answers_to, chat_prompt

if TYPE_CHECKING:
    from ..training.adapters import CausalLM

__all__ = ["TextGenerationPipeline"]

Chat = Sequence[dict[str, Any]]  # messages {"role": ..., "content": ...}


class TextGenerationPipeline(Described):
    """Generates text: pipe("text"), pipe(["text", "text"]),
    pipe([{"role": "user", "content": "..."}]), pipe([chat, chat]).

    Defaults are transformers' (max_new_tokens=256, do_sample=True, temperature=0.7). Fields of the
    model's generation_config.json override them, and those of a call override both.

    Args:
        model: path of a model folder, an .onnx file or an .edge package; the id of a model of the
            hub (needs `edgewise[hub]`); or a CausalLM or another decoder.
        tokenizer: a Tokenizer, a path or an id. Default: the model's.
        assistant_model: a smaller model with the same tokenizer, as `model`: it guesses tokens, as
            edgewise.generate's.
        options: of CausalLM, for a path.

    Attributes:
        model, tokenizer, assistant_model: as loaded.
        generation_config: defaults of calls.

    Raises:
        TokenizerError: there is no tokenizer. InputError, ModelError: as CausalLM.
    """

    DEFAULTS = DEFAULTS

    @memory_in_words
    def __init__(
        self,
        model: str | os.PathLike[str] | CausalLM | Any,
        tokenizer: Tokenizer | str | os.PathLike[str] | Any = None,
        assistant_model: str | os.PathLike[str] | CausalLM | Any = None,
        **options: Any,
    ):
        _check_options(options)
        if options and not isinstance(model, (str, os.PathLike)):
            raise InputError(
                f"the model is loaded already, so {', '.join(options)} cannot have an effect",
                "pipeline",
            )
        check_device(options.pop("device", None))
        self.model: Any = _loaded(model, options)
        if tokenizer is None:
            tokenizer = _find_tokenizer(self.model)
        self.tokenizer: Any = (
            Tokenizer.from_pretrained(tokenizer_path(tokenizer))
            if isinstance(tokenizer, (str, os.PathLike))
            else tokenizer
        )
        self.assistant_model: Any = None
        if assistant_model is not None:
            self.assistant_model = self._assistant(assistant_model)
        self.generation_config = self._defaults()

    def _described(self) -> Sequence[tuple[str, object]]:
        return [("model", self.model)]

    def profile(self, text_inputs: Any = None, **fields: Any) -> Profile:
        """A Profile of a generation.

        Args:
            text_inputs, fields: as of a call, which is profiled. Default: what runs in a `with`
                block is profiled.

        Returns:
            The profile: `print(p)`, `p.save("trace.json")`.
        """
        p = self.model.profile()
        if text_inputs is not None:
            with p:
                self(text_inputs, **fields)
        return p

    # long: the signature of transformers' pipeline has 18 parameters
    @memory_in_words
    def __call__(
        self,
        text_inputs: str | Chat | Sequence[str] | Sequence[Chat],
        return_full_text: bool | None = None,
        return_tensors: bool | None = None,
        return_text: bool | None = None,
        clean_up_tokenization_spaces: bool | None = None,
        prefix: str | None = None,
        handle_long_generation: str | None = None,
        stop_sequence: str | None = None,
        continue_final_message: bool | None = None,
        skip_special_tokens: bool | None = None,
        add_special_tokens: bool | None = None,
        tokenizer_encode_kwargs: dict[str, Any] | None = None,
        generation_config: GenerationConfig | dict[str, Any] | None = None,
        streamer: Any = None,
        stopping_criteria: Any = None,
        logits_processor: Any = None,
        signal: Any = None,
        cache: bool = True,
        response_format: Any = None,
        on_parsed: Callable[[Any], object] | None = None,
        tools: Sequence[Any] | None = None,
        tool_choice: Any = None,
        parallel_tool_calls: bool = True,
        on_delta: Callable[[dict[str, Any]], object] | None = None,
        truncation: bool | str | None = None,
        truncation_side: str | None = None,
        **fields: Any,
    ) -> list[Any]:
        """Continues texts or answers chats.

        Args:
            text_inputs: a text, a chat (list of messages), token ids {"input_ids": ids}, to which
                nothing is added, or a list of these.
            return_full_text: False: only the new text, also for chats.
            return_tensors: return {"generated_token_ids": ids}.
            return_text: return text, as by default.
            clean_up_tokenization_spaces: as the tokenizer's configuration by default.
            prefix: put before each text.
            handle_long_generation: "hole": cut the beginning of a prompt that is too long.
            stop_sequence: text whose first token ends the generation.
            continue_final_message: continue the last message. Default: if it is the assistant's.
            skip_special_tokens: leave them out of the text. Default: True.
            add_special_tokens: to the prompt. Default: True; not for chats.
            tokenizer_encode_kwargs: of the tokenizer or its chat template.
            response_format: what the answer has to be, as edgewise.generate's. If it is JSON, the
                results have its value as "parsed".
            on_parsed: called with that value, as far as it is written, whenever it has grown.
            tools: that the answer may call: [{"name", "description", "parameters"}], with a JSON
                schema. The answer's message then has "tool_calls" and "reasoning_content" beside
                "content", if it has such parts. Arguments satisfy the schemas of tools with
                "strict": True.
            tool_choice: "auto"; "none": no calls; "required": calls alone, or {"type": "function",
                "function": {"name": ...}}: of this tool, both with arguments of its schema.
            parallel_tool_calls: whether an answer may have several calls.
            on_delta: called with these parts while they are written.
            truncation: shorten prompts that are longer than a sequence of the model, so that
                max_new_tokens have room, but at most half of it; otherwise they are refused. Of
                chats the earliest turns are left out, but not messages before the first of the
                user.
            truncation_side: of other prompts, the end that is cut. Default: "left".
            generation_config, streamer, stopping_criteria, logits_processor, signal, fields: as
                edgewise.generate's.
            cache: continue from the states of an earlier call that begins with the same tokens,
                such as those of the same conversation, and keep these states for later calls. The
                results are those without.

        Returns:
            [{"generated_text": ...}, ...], one per returned sequence; for several inputs a list of
            such lists. For chats, generated_text is the messages with the answer.

        Raises:
            InputError, UnsupportedField, EngineError, Aborted: as edgewise.generate.
            TokenizerError: the tokenizer lacks what is needed.
        """
        _check_arguments(return_full_text, return_tensors, return_text, handle_long_generation)
        if stop_sequence is not None:
            fields["eos_token_id"] = self._encode(stop_sequence, add_special_tokens=False)
        inputs, several = inputs_of(_listed(text_inputs))
        decoding: dict[str, Any] = {"skip_special_tokens": skip_special_tokens is not False}
        if clean_up_tokenization_spaces is not None:
            decoding["clean_up_tokenization_spaces"] = clean_up_tokenization_spaces
        shown = {"return_full_text": return_full_text, "return_tensors": return_tensors}
        shortening = {"truncation": truncation, "truncation_side": truncation_side}
        check_given(response_format)
        read = parsed if is_json(response_format) else None
        if on_parsed is not None:
            streamer = _parsing(self.tokenizer, read is not None, on_parsed, streamer)
        usable, wanted = chosen_tools(tools, tool_choice, on_delta is not None)
        results = []
        for one in inputs:
            goes_on = continues(one, continue_final_message)
            extra = tokenizer_encode_kwargs or {}
            prompt = self._prompt(one, goes_on, prefix, add_special_tokens, extra, usable)
            config = self._config(generation_config, fields)
            how = self._truncation(shortening, config, fields)
            prompt = self._fitting(one, prompt, goes_on, how, extra, usable)
            answers = None if usable is None else answers_to(self.tokenizer, usable, one, prompt)
            form = response_format
            if answers is not None:
                form = answers.format(wanted, parallel_tool_calls, response_format)
            if handle_long_generation == "hole":
                prompt = self._cut(prompt, config, fields)
            out = self._generate(
                prompt,
                config,
                fields,
                streamer=_beside(streamer, answers, on_delta),
                stopping_criteria=stopping_criteria,
                signal=signal,
                logits_processor=logits_processor,
                cache=cache,
                response_format=form,
            )
            made = Output(
                out["sequences"],
                out["finish_reasons"],
                sequences_scores=out.get("sequences_scores"),
            )
            details = bool(fields.get("return_dict_in_generate"))
            decode = partial(self.tokenizer.decode, **decoding)
            message = None if answers is None else answers.message
            results.append(
                records_of(one, prompt, made, goes_on, shown, details, decode, read, message)
            )
        return results if several else results[0]

    def run(
        self,
        messages: Chat,
        *,
        tools: Mapping[str, Any],
        max_rounds: int | None = None,
        tool_timeout: float | None = None,
        time_limit: float | None = None,
        on_message: Callable[[dict[str, Any]], object] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Answers a chat, and calls tools as the model asks, until there is an answer without
        calls: `pipe.run(messages, tools={"get_weather": get_weather})`.

        The model reads what a tool returns: a text, or a value as JSON. It reads {"error": ...} if
        a tool raises, takes too long, returns more than 100,000 characters or is not there; the
        conversation goes on. The calls of an answer run at once, each in a thread.

        Args:
            messages: of the chat.
            tools: functions by name. Their signatures and docstrings (with "Args:") describe them;
                or {"description", "parameters", "strict", "execute"}, with a JSON schema.
            max_rounds: answers of the model. Default: 10.
            tool_timeout: seconds of a tool. Default: 60. A thread cannot be ended: it goes on, and
                what it returns is dropped.
            time_limit: seconds of all. Default: none.
            on_message: called with each answer of the model.
            options: as of a call, such as on_delta, but for tools.

        Returns:
            {"generated_text": the messages with the answers and results, "rounds": answers of the
            model, "ended": "answer", or the limit: "rounds" or "time"}

        Raises:
            InputError: tools or limits are wrong. Otherwise as a call.
        """
        limits = (max_rounds, tool_timeout, time_limit)
        return run_tools(self, list(messages), tools, *limits, on_message, options)

    def clear_cache(self) -> None:
        """Frees the states of earlier calls, which later ones would continue from."""
        clear = getattr(self.model, "clear_cache", None)
        if clear is not None:
            clear()

    def save_prefix(
        self,
        text_inputs: str | Chat | dict[str, list[int]],
        path: Any = None,
        *,
        tools: Sequence[Any] | None = None,
        add_special_tokens: bool | None = None,
        tokenizer_encode_kwargs: dict[str, Any] | None = None,
    ) -> bytes | None:
        """Saves what the model has read after the beginning of prompts, such as a system prompt,
        tools and documents, for `load_prefix`.

        Args:
            text_inputs: a text, or the first messages of a chat, or token ids {"input_ids": ids}.
                Saved are whole pieces of `model.prefill_chunk` (128) tokens of those that every
                prompt which begins so has.
            path: of the file (it is complete or not written at all); None: returns the bytes.
            tools, add_special_tokens, tokenizer_encode_kwargs: as of a call.

        Returns:
            a safetensors file, without a path

        Raises:
            InputError: there are fewer tokens than a piece, more than a sequence has, or nothing is
                kept between runs of this model. TokenizerError: as a call.
        """
        inputs, _ = inputs_of(_listed(text_inputs))
        if len(inputs) != 1:
            raise InputError("there are several prefixes", "save_prefix", "Save one at a time.")
        [given] = inputs
        prompts = [given] if is_ids(given) else continuations(given)
        usable, _ = chosen_tools(tools, None)
        extra = tokenizer_encode_kwargs or {}
        ids = common(
            [self._prompt(one, False, None, add_special_tokens, extra, usable) for one in prompts]
        )
        save: Any = _method_of_model(self.model, "save_prefix")
        return cast("bytes | None", save(ids, path))

    def load_prefix(self, source: str | os.PathLike[str] | bytes) -> int:
        """Loads what `save_prefix` wrote: calls whose prompts begin with its tokens do not read
        them, and give what they give without, bit for bit on the same kind of processor. It is one
        of the states of `cache_bytes`, of which the least recently used go first.

        Args:
            source: a path, or bytes.

        Returns:
            its tokens

        Raises:
            ModelError: the file is damaged. InputError: it was saved with another model, other
                options of it, another adapter or another version, or `cache_bytes` has no room.
        """
        return int(_method_of_model(self.model, "load_prefix")(source))

    def _assistant(self, given: Any) -> Any:
        """The smaller model, whose tokenizer is compared."""
        small = _loaded(given, {})
        if hasattr(small, "package") and hasattr(self.tokenizer, "token_of"):
            other, size = _find_tokenizer(small), self.model.vocab_size
            check_tokenizers(self.tokenizer.token_of, other.token_of, size, small.vocab_size)
        return small

    def _generate(
        self,
        prompt: list[int],
        config: Configuration | dict[str, Any],
        fields: dict[str, Any],
        **options: Any,
    ) -> GenerateOutput:
        """Calls `generate`, which returns all that it can. options: its other arguments."""
        out = generate(
            self.model,
            prompt,
            config,
            tokenizer=self.tokenizer,
            assistant_model=self.assistant_model,
            **options,
            **{**fields, "return_dict_in_generate": True},
        )
        return cast(GenerateOutput, out)

    def _prompt(
        self,
        given: Any,
        continues: bool,
        prefix: str | None,
        add_special_tokens: bool | None,
        extra: Mapping[str, Any],
        tools: Sequence[dict[str, Any]] | None = None,
    ) -> list[int]:
        """Token ids of an input. continues: whether the last message is continued."""
        if prefix is not None and not isinstance(prefix, str):
            raise wrong_type(prefix, "prefix", "a string")
        if not isinstance(extra, dict):
            raise wrong_type(extra, "tokenizer_encode_kwargs", "a dict")
        if tools is not None:
            check_chat(given)
        if is_ids(given):
            return list(given["input_ids"])
        if isinstance(given, str):
            special = (
                {} if add_special_tokens is None else {"add_special_tokens": add_special_tokens}
            )
            return self._encode((prefix or "") + given, **{**extra, **special})
        return self._chat(given, not continues, continues, extra, tools)

    def _chat(
        self,
        chat: Chat,
        opens: bool,
        continues: bool,
        extra: Mapping[str, Any],
        tools: Sequence[dict[str, Any]] | None,
    ) -> list[int]:
        """Token ids of messages."""
        _method(self.tokenizer, "apply_chat_template")
        return chat_prompt(
            self.tokenizer,
            chat,
            tools,
            add_generation_prompt=opens,
            continue_final_message=continues,
            **extra,
        )

    def _truncation(
        self,
        options: Mapping[str, Any],
        config: Configuration | dict[str, Any],
        fields: Mapping[str, Any],
    ) -> Truncation | None:
        whole = config if isinstance(config, Configuration) else Configuration(config)
        return truncation_of(options, whole, fields, self.model.max_length)

    def _fitting(
        self,
        given: Any,
        prompt: list[int],
        continues: bool,
        how: Truncation | None,
        extra: Mapping[str, Any],
        tools: Sequence[dict[str, Any]] | None,
    ) -> list[int]:
        """The prompt of an input, shortened where the call says so."""
        if how is None:
            return prompt
        if isinstance(given, str) or is_ids(given):
            return cut(prompt, how, getattr(self.tokenizer, "bos_token_id", None))

        def answer(request: Encode) -> list[int]:
            opens = request.opens and not continues
            return self._chat(request.messages, opens, request.opens and continues, extra, tools)

        return drive(fitting_chat(list(given), prompt, how.room), answer)

    def _defaults(self) -> GenerationConfig:
        own = GenerationConfig.from_dict(model_defaults(self.model))
        eos = getattr(self.tokenizer, "eos_token_id", None)
        return GenerationConfig(**task_defaults(own, self.DEFAULTS, eos).values)

    def _config(
        self, given: GenerationConfig | dict[str, Any] | None, fields: dict[str, Any]
    ) -> Configuration | dict[str, Any]:
        """The configuration of a call."""
        if given is not None and not isinstance(given, dict) and not hasattr(given, "values"):
            raise wrong_type(given, "generation_config", "a GenerationConfig or a dict")
        return defaults_of_call(self.generation_config, fields) if given is None else given

    def _encode(self, text: str, **extra: Any) -> list[int]:
        encode = _method(self.tokenizer, "encode")
        if extra and not _takes(encode, text, extra):
            raise InputError(
                f"the tokenizer's encode does not take {', '.join(extra)}",
                "tokenizer_encode_kwargs",
                "Leave it out, or give add_special_tokens.",
            )
        ids = encode(text, **extra)
        return list(getattr(ids, "ids", ids))  # `tokenizers` returns an object

    def _cut(
        self, prompt: list[int], config: Configuration | dict[str, Any], fields: dict[str, Any]
    ) -> list[int]:
        """The end of the prompt that leaves room for the new tokens."""
        whole = GenerationConfig(**(config if isinstance(config, dict) else config.values))
        whole.update({k: v for k, v in fields.items() if k in ("max_length", "max_new_tokens")})
        room = self.model.max_length - (
            whole.max_new_tokens or max(0, whole.max_length - len(prompt))
        )
        if room <= 0:
            raise InputError(
                "max_new_tokens exceeds the model's maximum length",
                "pipeline",
                "Lower max_new_tokens.",
            )
        return prompt[-room:]


def _takes(encode: Callable[..., Any], text: str, extra: Mapping[str, Any]) -> bool:
    """Whether a tokenizer's method takes a text with these arguments, as far as it tells."""
    try:
        signature = inspect.signature(encode)
    except ValueError:  # of native code without a signature
        return True
    parameters = list(signature.parameters.values())
    if parameters and parameters[0].name == "self":  # of native methods, though they are bound
        signature = signature.replace(parameters=parameters[1:])
    try:
        signature.bind(text, **extra)
    except TypeError:
        return False
    return True


def _check_arguments(
    return_full_text: bool | None,
    return_tensors: bool | None,
    return_text: bool | None,
    handle_long_generation: str | None,
) -> None:
    if return_full_text is not None and (return_text is not None or return_tensors is not None):
        raise InputError("return_full_text excludes return_text and return_tensors", "pipeline")
    if return_text is not None and return_tensors is not None:
        raise InputError("return_text excludes return_tensors", "pipeline")
    if handle_long_generation not in (None, "hole"):
        raise InputError(
            f"handle_long_generation is {handle_long_generation!r}",
            "pipeline",
            'It can be None or "hole".',
        )


def _parsing(tokenizer: Any, reads: bool, on_parsed: Callable[[Any], object], streamer: Any) -> Any:
    """A streamer that tells of JSON that is being written, beside the caller's own one."""
    if not reads:
        raise InputError(
            "on_parsed needs a response_format of JSON",
            "pipeline",
            "Give a schema, or take the text from streamer.",
        )
    value = ParsedText(on_parsed)
    own = TextStreamer(tokenizer, True, value.put, by_word=False, skip_special_tokens=True)
    return own if streamer is None else Streamers([own, streamer])


def _beside(
    streamer: Any, answers: Answers | None, on_delta: Callable[[dict[str, Any]], object] | None
) -> Any:
    """A streamer of a call with one that tells of the parts of its answer."""
    if on_delta is None or answers is None:
        return streamer
    own = answers.streamer(on_delta)
    return own if streamer is None else Streamers([own, streamer])


def _listed(text_inputs: Any) -> Any:
    """The input, as a list if it is another kind of iterable."""
    whole = isinstance(text_inputs, (str, dict)) or not hasattr(text_inputs, "__iter__")
    return text_inputs if whole else list(text_inputs)


def _method_of_model(model: object, name: str) -> Any:
    method = getattr(model, name, None)
    if method is None:
        raise InputError("a custom decoder keeps no states", name, "Load a model of Edgewise.")
    return method


def _method(tokenizer: object, name: str) -> Any:
    method = getattr(tokenizer, name, None)
    if method is None:
        raise TokenizerError(
            f"the tokenizer that was passed has no method {name}",
            "pipeline",
            (
                "Pass text instead of messages."
                if name == "apply_chat_template"
                else "Pass edgewise.text.Tokenizer."
            ),
        )
    return method


def _check_options(options: Mapping[str, Any]) -> None:
    """Raises InputError for an option that neither the pipeline nor CausalLM has."""
    from ..training.adapters import CausalLM

    own = options_of(TextGenerationPipeline.__init__)
    known = dict.fromkeys([*own, "device", *options_of(CausalLM.__init__)])
    check_known(list(options), list(known), "pipeline")


def _loaded(model: Any, options: dict[str, Any]) -> Any:
    """A model that may be a path or an id. options: of CausalLM."""
    if not isinstance(model, (str, os.PathLike)):
        return model
    from ..training.adapters import CausalLM

    return CausalLM(model, **options)


def _find_tokenizer(model: object) -> Tokenizer:
    """The tokenizer in the package of a model. The package of a folder has the folder's files."""
    package = getattr(model, "package", None)
    if package is None:
        raise TokenizerError("a custom decoder has no tokenizer", "pipeline", "Pass tokenizer=.")
    if package.file("tokenizer.json") is None:
        raise TokenizerError(
            "there is no tokenizer.json with the model",
            "pipeline",
            "Put it beside the model, or pass tokenizer=.",
        )
    return Tokenizer.from_files(package.file)
