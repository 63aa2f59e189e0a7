"""Tokenizers as Hugging Face models bring them: tokenizer.json, tokenizer_config.json, a chat template.

In CPython this wraps the `tokenizers` library. Pyodide has no wheel of it: there, anything with encode and decode may be passed to the
pipeline instead, and `ChatTemplate` (jinja2 is pure Python) works by itself.
"""

import datetime
import functools
import json
from pathlib import Path

from ..errors import TokenizerError

__all__ = ["ChatTemplate", "Tokenizer"]

_SPECIAL = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"]


class Tokenizer:
    """`Tokenizer.from_pretrained(directory)`: encode, decode, special tokens, chat template.

    What transformers' PreTrainedTokenizerFast does with the same files: special tokens are added by the post-processor of
    tokenizer.json, and by add_bos_token / add_eos_token of tokenizer_config.json for the Llama-like classes that rebuild it.
    Attributes: bos_token, eos_token, pad_token, ... and *_id of each (None where there is none), chat_template, model_max_length.
    """

    def __init__(self, tokenizer_json, config=None, special_tokens=None, chat_template=None, where="tokenizer.json"):
        """tokenizer_json: the file's text. config, special_tokens: contents of tokenizer_config.json and special_tokens_map.json."""
        try:
            import tokenizers
        except ImportError:
            raise TokenizerError("the `tokenizers` library is not installed", where,
                                 "Install edgewise[text]; or pass any object with encode(text) and decode(ids) as tokenizer.") from None
        self.config, self.where = config or {}, where
        try:
            self.backend = tokenizers.Tokenizer.from_str(tokenizer_json)
        except Exception as error:
            raise TokenizerError(f"not a valid tokenizer file ({error})", where,
                                 "Copy tokenizer.json again from the model it belongs to; it may be truncated.") from None
        self.backend.no_truncation()  # limits in the file are for training
        self.backend.no_padding()
        for name in _SPECIAL:
            token = self.config.get(name, (special_tokens or {}).get(name))
            token = token.get("content") if isinstance(token, dict) else token
            if token is not None and not isinstance(token, str):
                raise TokenizerError(f"{name} is neither a string nor an object with `content`", where.replace("tokenizer.json", "tokenizer_config.json"),
                                     "Copy the tokenizer's files again from the model they belong to.")
            setattr(self, name, token)
            setattr(self, name + "_id", None if token is None else self.backend.token_to_id(token))
        self.model_max_length = self.config.get("model_max_length")
        self._follow_add_bos()
        template = chat_template if chat_template is not None else self.config.get("chat_template")
        if isinstance(template, list):  # [{"name": ..., "template": ...}]
            named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
            template = named.get("default") or next(iter(named.values()), None)
        self.chat_template = template

    @classmethod
    def from_pretrained(cls, path):
        """path: a model directory, or a tokenizer.json. Raises TokenizerError naming the file, the place in it and the remedy."""
        path = Path(path)
        directory, name = (path, "tokenizer.json") if path.is_dir() else (path.parent, path.name)

        def read(file):
            if file == "tokenizer.json":
                file = name
            try:
                return (directory / file).read_bytes()
            except FileNotFoundError:
                return None
            except OSError as error:
                raise TokenizerError(f"cannot be read ({error.strerror})", directory / file, "Check the file's permissions.") from None

        return cls.from_files(read, directory)

    @classmethod
    def from_files(cls, read, where=""):
        """read(name) -> bytes of a file of the model, or None; `where` comes before the file's name in errors."""
        def text(name):
            data = read(name)
            try:
                return None if data is None else bytes(data).decode("utf-8")
            except UnicodeDecodeError as error:
                raise TokenizerError(f"byte {error.start} is not UTF-8", place(name), "Copy the file again; this is not text.") from None

        def place(name):
            return str(Path(where) / name)

        def load(name):
            content = text(name)
            return {} if content is None else _parse(content, place(name))

        tokenizer = text("tokenizer.json")
        if tokenizer is None:
            raise TokenizerError("there is no tokenizer here", place("tokenizer.json"),
                                 "A model needs a tokenizer.json (a slow tokenizer's vocabulary files are not enough: save it once with "
                                 "transformers' AutoTokenizer(..., use_fast=True)).")
        _parse(tokenizer, place("tokenizer.json"))  # `tokenizers` names no place in a broken file; the JSON parser does
        return cls(tokenizer, load("tokenizer_config.json"), load("special_tokens_map.json"), text("chat_template.jinja"),
                   place("tokenizer.json"))

    def _follow_add_bos(self):
        """LlamaTokenizerFast and GemmaTokenizerFast rebuild the post-processor from add_bos_token and add_eos_token; the others leave
        it as the file has it (CodeGen and GPT-2 know the fields, but for slow tokenizers only)."""
        name = str(self.config.get("tokenizer_class", "")).removesuffix("Fast")
        if name not in ("LlamaTokenizer", "GemmaTokenizer", "CohereTokenizer"):
            return
        if "add_bos_token" not in self.config and "add_eos_token" not in self.config:
            return
        bos = self.bos_token if self.config.get("add_bos_token", True) and self.bos_token_id is not None else None
        eos = self.eos_token if self.config.get("add_eos_token", False) and self.eos_token_id is not None else None
        from tokenizers.processors import TemplateProcessing
        single = ([f"{bos}:0"] if bos else []) + ["$A:0"] + ([f"{eos}:0"] if eos else [])
        special = [(token, self.backend.token_to_id(token)) for token in (bos, eos) if token]
        self.backend.post_processor = TemplateProcessing(single=single, pair=single + ["$B:1"], special_tokens=special)

    @property
    def vocab_size(self):
        """Tokens, the added ones included."""
        return self.backend.get_vocab_size(with_added_tokens=True)

    def _guarded(self, call):
        """A tokenizer.json can be valid and make no sense (a template without its tokens): `tokenizers` then raises anything, a Rust panic too."""
        try:
            return call()
        except (KeyboardInterrupt, SystemExit, MemoryError, OverflowError, TypeError):
            raise  # the caller's own
        except BaseException as error:
            raise TokenizerError(f"it cannot be used ({error})", self.where, "Copy tokenizer.json again from the model it belongs to.") from None

    def encode(self, text, add_special_tokens=True):
        """-> list of ids."""
        if not isinstance(text, str):
            raise TypeError(f"encode needs a string, not {type(text).__name__}")
        return self._guarded(lambda: self.backend.encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(self, ids, skip_special_tokens=False, clean_up_tokenization_spaces=None):
        """-> text. clean_up_tokenization_spaces: as in transformers, from tokenizer_config.json where not given (there: default False)."""
        ids = ids.tolist() if hasattr(ids, "tolist") else list(ids)
        text = self._guarded(lambda: self.backend.decode(ids, skip_special_tokens=skip_special_tokens))
        clean = self.config.get("clean_up_tokenization_spaces", False) if clean_up_tokenization_spaces is None else clean_up_tokenization_spaces
        return _clean_up(text) if clean else text

    def __call__(self, text, add_special_tokens=True):
        return {"input_ids": self.encode(text, add_special_tokens)}

    def apply_chat_template(self, messages, tools=None, documents=None, chat_template=None, add_generation_prompt=False,
                            continue_final_message=False, tokenize=True, **variables):
        """messages ([{"role", "content"}]) -> ids, or text with tokenize=False. Raises TokenizerError where there is no template, or
        where it refuses the messages."""
        template = chat_template or self.chat_template
        if not template:
            raise TokenizerError("this tokenizer has no chat template", "tokenizer_config.json",
                                 "Pass text instead of messages, or chat_template=.")
        special = {name: getattr(self, name) for name in _SPECIAL if getattr(self, name) is not None}
        text = ChatTemplate(template)(messages, tools=tools, documents=documents, add_generation_prompt=add_generation_prompt,
                                      continue_final_message=continue_final_message, **{**special, **variables})
        return self.encode(text, add_special_tokens=False) if tokenize else text


class ChatTemplate:
    """A Jinja chat template, rendered in the sandbox with the functions transformers gives it (utils/chat_template_utils.py)."""

    def __init__(self, source, where="chat template"):
        self.where = where
        self.template = _compile(source, where)

    def __call__(self, messages, tools=None, documents=None, add_generation_prompt=False, continue_final_message=False, **variables):
        """-> text. continue_final_message: leave the last message open for the model to go on with."""
        import jinja2
        mark = "CONTINUE_FINAL_MESSAGE_TAG "
        messages = [dict(message) for message in messages]
        if continue_final_message:
            if add_generation_prompt:
                raise TokenizerError("continue_final_message and add_generation_prompt exclude each other", self.where, "Pass one of them.")
            final = messages[-1].get("content")
            if not isinstance(final, str):
                raise TokenizerError("continue_final_message needs a last message of text", self.where, "Give the last message a content of text.")
            messages[-1]["content"] = final + mark
        try:
            text = self.template.render(messages=messages, tools=tools, documents=documents, add_generation_prompt=add_generation_prompt,
                                        **variables)
        except jinja2.TemplateError as error:
            raise TokenizerError(f"the chat template refused the messages: {error.message or error}", _place(self.where, error),
                                 "Check the roles and their order; each model's template has its own rules.") from None
        except Exception as error:  # a template is a program from elsewhere: whatever it raises is about it
            raise TokenizerError(f"the chat template failed: {type(error).__name__}: {error}", self.where,
                                 "Check that every message has the fields the template uses.") from None
        if continue_final_message:
            end = text.rfind(mark.strip())
            if end < 0 or final.strip() not in text:
                raise TokenizerError("the chat template drops the message that is to be continued", self.where, "Pass add_generation_prompt instead, or text.")
            text = text[:end] if text[end:end + len(mark)] == mark else text[:end].rstrip()
        return text


@functools.lru_cache(maxsize=16)
def _compile(source, where):
    try:
        import jinja2
        import jinja2.ext
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise TokenizerError("chat templates need `jinja2`, which is not installed", where,
                             "Install edgewise[text]; in Pyodide: await micropip.install('jinja2').") from None

    class Generation(jinja2.ext.Extension):
        """{% generation %}...{% endgeneration %} marks the assistant's text for training; here it is just its contents."""
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("contents"), [], [], body).set_lineno(line)

        def contents(self, caller):
            return caller()

    def raise_exception(message):
        raise jinja2.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda format: datetime.datetime.now().strftime(format)
    try:
        return environment.from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise TokenizerError(f"the chat template is broken: {error.message}", _place(where, error),
                             "Copy the tokenizer's files again from the model they belong to.") from None


def _place(where, error):
    line = getattr(error, "lineno", None)
    return f"{where}, line {line}" if line else where


def _parse(text, file):
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = f", line {error.lineno} column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        message = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise TokenizerError(f"broken JSON: {message}", f"{file}{line}", "Copy the file again; it may be truncated.") from None
    if not isinstance(value, dict):
        raise TokenizerError("expected a JSON object", file, "Copy the file again from the model it belongs to.")
    return value


def _clean_up(text):
    """clean_up_tokenization of transformers' tokenization_utils_base.py."""
    for old, new in ((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"), (" 's", "'s"),
                     (" 've", "'ve"), (" 're", "'re")):
        text = text.replace(old, new)
    return text
