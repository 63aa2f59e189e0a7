"""Text generation from text or chat messages. Mirrors transformers/pipelines/text_generation.py."""

import os

from ..errors import InputError, TokenizerError
from ..text import GenerationConfig, Tokenizer, generate
from ..text.generate import model_defaults

__all__ = ["TextGenerationPipeline"]


class TextGenerationPipeline:
    """Calls: pipe("text"), pipe(["text", "text"]), pipe([{"role": "user", "content": "..."}]),
    pipe([chat, chat]).

    Fields of the model's generation_config.json come before these defaults, which are
    transformers': max_new_tokens=256, do_sample=True, temperature=0.7. What is passed in a call
    comes before both.
    """

    DEFAULTS = {"max_new_tokens": 256, "do_sample": True, "temperature": 0.7}

    def __init__(self, model, tokenizer=None, **options):
        if isinstance(model, (str, os.PathLike)):
            from ..training.adapters import CausalLM

            self.model = CausalLM(model, **options)
        elif options:
            raise InputError(
                f"the model is loaded already, so {', '.join(options)} cannot have an effect",
                "pipeline",
            )
        else:
            self.model = model
        if tokenizer is None:
            tokenizer = _find_tokenizer(self.model)
        self.tokenizer = (
            Tokenizer.from_pretrained(tokenizer)
            if isinstance(tokenizer, (str, os.PathLike))
            else tokenizer
        )
        self.generation_config = self._defaults()

    def profile(self, text_inputs=None, **fields):
        """A profile.Profile of a generation: of this one, `pipe.profile("Once upon a time",
        max_new_tokens=20)`, or of what runs in a block, `with pipe.profile() as p: ...`.

        Then `print(p)`, `p.save("trace.json")`. Raises as a call.
        """
        p = self.model.profile()
        if text_inputs is not None:
            with p:
                self(text_inputs, **fields)
        return p

    def __call__(
        self,
        text_inputs,
        return_full_text=None,
        return_tensors=None,
        return_text=None,
        clean_up_tokenization_spaces=None,
        prefix=None,
        handle_long_generation=None,
        stop_sequence=None,
        continue_final_message=None,
        skip_special_tokens=None,
        add_special_tokens=None,
        tokenizer_encode_kwargs=None,
        generation_config=None,
        streamer=None,
        stopping_criteria=None,
        logits_processor=None,
        signal=None,
        **fields,
    ):
        """-> [{"generated_text": ...}, ...], one per returned sequence; for several inputs a list
        of such lists.

        For chats, generated_text holds the messages with the answer as the last.
        return_full_text=False: only what is new (for chats, too, as text). return_tensors:
        {"generated_token_ids": ids} instead. continue_final_message: by default true where the last
        message is the assistant's. handle_long_generation="hole": cut the prompt on the left to
        make room. **fields, streamer, ...: see edgewise.generate. Raises what generate raises, and
        TokenizerError.
        """
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
        if stop_sequence is not None:
            fields["eos_token_id"] = self._encode(stop_sequence, add_special_tokens=False)
        inputs, several = _inputs(text_inputs)
        results = []
        for one in inputs:
            chat = not isinstance(one, str)
            going_on = chat and (
                one[-1]["role"] == "assistant"
                if continue_final_message is None
                else continue_final_message
            )
            extra = dict(tokenizer_encode_kwargs or {})
            if chat:
                prompt = _method(self.tokenizer, "apply_chat_template")(
                    one,
                    add_generation_prompt=not going_on,
                    continue_final_message=going_on,
                    **extra,
                )
            else:
                if add_special_tokens is not None:
                    extra["add_special_tokens"] = add_special_tokens
                prompt = self._encode((prefix or "") + one, **extra)
            config = self._config(generation_config, fields)
            if handle_long_generation == "hole":
                prompt = self._cut(prompt, config, fields)
            out = generate(
                self.model,
                prompt,
                config,
                streamer=streamer,
                stopping_criteria=stopping_criteria,
                signal=signal,
                logits_processor=logits_processor,
                tokenizer=self.tokenizer,
                **{**fields, "return_dict_in_generate": True},
            )
            records = []
            for i, ids in enumerate(out["sequences"]):
                if return_tensors:
                    record = {"generated_token_ids": ids}
                else:
                    new = self._new_text(
                        ids, prompt, skip_special_tokens is not False, clean_up_tokenization_spaces
                    )
                    record = {
                        "generated_text": (
                            new if return_full_text is False else _full(one, new, chat, going_on)
                        )
                    }
                if fields.get("return_dict_in_generate"):
                    record.update(
                        {
                            name: values[i]
                            for name, values in out.items()
                            if name in ("finish_reasons", "sequences_scores")
                        }
                    )
                records.append(record)
            results.append(records)
        return results if several else results[0]

    def _defaults(self):
        config = GenerationConfig(**self.DEFAULTS)
        own = GenerationConfig.from_dict(model_defaults(self.model))
        if own.max_length != 20 and own.max_new_tokens is None:
            config.max_new_tokens = None  # a length that the model's makers chose stands
        config = config.merged(own)
        if config.eos_token_id is None:
            config.eos_token_id = getattr(self.tokenizer, "eos_token_id", None)
        return config

    def _config(self, given, fields):
        """What generate() gets as config for a call with `fields`."""
        if given is not None:
            return given
        if fields.get("max_length") is None or fields.get("max_new_tokens") is not None:
            return self.generation_config
        config = self.generation_config.merged(GenerationConfig())
        config.max_new_tokens = (
            None  # or the default would win over the max_length that was asked for
        )
        return config

    def _encode(self, text, **extra):
        ids = _method(self.tokenizer, "encode")(text, **extra)
        return list(getattr(ids, "ids", ids))  # `tokenizers` gives an object

    def _new_text(self, ids, prompt, skip_special_tokens, clean_up):
        """The decoded sequence without its prompt.

        Both are decoded and the lengths compared, since a token's text can depend on those
        before it.
        """
        extra = {"skip_special_tokens": skip_special_tokens}
        if clean_up is not None:
            extra["clean_up_tokenization_spaces"] = clean_up
        return self.tokenizer.decode(ids, **extra)[len(self.tokenizer.decode(prompt, **extra)) :]

    def _cut(self, prompt, config, fields):
        config = GenerationConfig(**config) if isinstance(config, dict) else config
        config = config.merged(
            GenerationConfig(
                **{k: v for k, v in fields.items() if k in ("max_length", "max_new_tokens")}
            )
        )
        room = self.model.max_length - (
            config.max_new_tokens or max(0, config.max_length - len(prompt))
        )
        if room <= 0:
            raise InputError(
                "the tokens to generate alone exceed the model's length",
                "pipeline",
                "Lower max_new_tokens.",
            )
        return prompt[-room:]


def _inputs(text_inputs):
    """-> (list of texts and chats, whether several were given)"""
    if isinstance(text_inputs, str):
        return [text_inputs], False
    inputs = (
        list(text_inputs)
        if hasattr(text_inputs, "__iter__") and not isinstance(text_inputs, dict)
        else None
    )
    if inputs and isinstance(inputs[0], dict):
        inputs, several = [inputs], False
    else:
        several = True
    for one in inputs or [None]:
        if isinstance(one, str):
            continue
        if (
            not isinstance(one, (list, tuple))
            or not one
            or not all(isinstance(m, dict) and "role" in m and "content" in m for m in one)
        ):
            raise InputError(
                "the input is neither text nor chat messages",
                "pipeline",
                'Give a string, a list of strings, or messages like [{"role": "user", "content":'
                ' "Hello"}].',
            )
    return inputs, several


def _full(given, new, chat, going_on):
    if not chat:
        return given + new
    if going_on:
        return [*given[:-1], {**given[-1], "content": given[-1]["content"] + new}]
    return [*given, {"role": "assistant", "content": new}]


def _method(tokenizer, name):
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


def _find_tokenizer(model):
    """The tokenizer in the package of a model; one of a folder has the folder's files."""
    package = getattr(model, "package", None)
    if package is None:
        raise TokenizerError(
            "a decoder of one's own does not say where its tokenizer is",
            "pipeline",
            "Pass tokenizer=.",
        )
    if package.file("tokenizer.json") is None:
        raise TokenizerError(
            "there is no tokenizer.json with the model",
            "pipeline",
            "Put it beside the model, or pass tokenizer=.",
        )
    return Tokenizer.from_files(package.file)
