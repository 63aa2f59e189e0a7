"""Text generation from pictures and text. Mirrors transformers/pipelines/image_text_to_text.py."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from ...compiler.arrays import Array
from ...compiler.processors.images.vision import VisionDescription
from ...compiler.targets import target_of
from ...compiler.task_package import compile_task
from ...errors import Aborted, InputError, memory_in_words
from ...logic.generation.fields import GENERATION_FIELDS
from ...logic.generation.run import Output
from ...logic.generation.text import defaults_of_call, task_defaults
from ...logic.multimodal.asking import (
    DEFAULTS,
    OPTIONS,
    PICTURES,
    TASK,
    Ask,
    Kind,
    asks_of,
    goes_on,
    open_messages,
    records_of_ask,
)
from ...logic.multimodal.encoder import features_of
from ...logic.multimodal.families.joined import grid_of
from ...logic.multimodal.families.pictures import prompt_text, shown
from ...logic.multimodal.families.positions import with_positions
from ...logic.multimodal.families.videos import (
    check_frames,
    chosen_of,
    moving,
    replaced_by,
    rules_of,
    still,
    with_videos,
)
from ...logic.multimodal.kept import Kept
from ...logic.multimodal.prompt import Prepared, Shown, check_room, check_rows, placed, with_reach
from ..engine import default_engine
from ..media.pictures import Picture, read_picture
from ..session.features import Features, Prompted
from ..session.open import folder_files, name_in
from ..session.packaged import ProgramSession
from ..text import GenerateOutput, GenerationConfig, generate
from ..text.generate import model_defaults
from ..text.signals import is_set
from ..training.adapters import CausalLM
from .adapted import AdaptedPipeline
from .files import Stem
from .images.encoder import EncoderSession, feature_rows
from .images.joined import joined
from .images.vision import VisionProcessor

if TYPE_CHECKING:
    from ...compiler.package import Package
    from ...compiler.training.peft import LoraConfig
    from ...logic.images.views import Seen

__all__ = ["ImageTextToTextPipeline"]


@dataclass
class Asked:
    """Prompts on the same pictures.

    Attributes:
        prompts: with the places of their features.
        shown: the pictures in them.
        parts: encodes the pictures, unless a signal is set: the features of each.
    """

    prompts: list[Prepared]
    shown: list[Shown]
    parts: Callable[[Any], list[bytes]]

    def features(self, prompt: Prepared, signal: Any) -> Features:
        """A prompt with the features of its pictures. Raises Aborted."""
        return Features(prompt, self.parts(signal), [one.count for one in self.shown])


_HOST = ("streamer", "signal", "stopping_criteria", "logits_processor", "generation_config")


class ImageTextToTextPipeline(AdaptedPipeline):
    """Answers questions about pictures: pipe(messages), pipe(text=messages), pipe(images=picture,
    text="..."), or lists of these.

    Messages have parts: [{"role": "user", "content": [{"type": "image", "image": picture},
    {"type": "text", "text": "What is this?"}]}]. Pictures are paths, bytes of a file, PIL.Images
    or arrays of uint8 [height, width, 3].

    Features of pictures are kept, so that a further turn of a conversation does not encode its
    pictures again.

    Args:
        model: path of a model folder or of a package of `edgewise build --task`, or the id of a
            model of the hub.
        tokenizer: a Tokenizer, a path or an id. Default: the model's.
        capacity: most tokens of a sequence, pictures among them. Default: the model's own context.
        max_length: the same as `capacity`.
        cache_dtype: as of CausalLM.
        options: as of Pipeline.

    Options of a call:
        return_full_text: False: only the new text. Default: True.
        return_tensors: return {"generated_token_ids": ids}.
        skip_special_tokens: leave them out of the text. Default: True.
        clean_up_tokenization_spaces: as the tokenizer's configuration by default.
        continue_final_message: continue the last message. Default: if it is the assistant's.
        add_special_tokens: to a text, or to a chat whose template has not written bos_token.
        stop_sequence: text whose first token ends the generation.
        response_format: what the answer has to be, as of edgewise.generate.
        generate_kwargs, generation_config, streamer, signal, stopping_criteria, logits_processor,
            and fields of GenerationConfig: as of edgewise.generate. max_new_tokens is 256.

    Returns:
        [{"input_text": ..., "generated_text": ...}], one per returned sequence; for a list of chats
        a list of these. generated_text of a chat is the messages with the answer. With
        return_dict_in_generate also "finish_reasons", as of text generation.
    """

    task = TASK
    STEMS: ClassVar[Sequence[Stem]] = (
        ("vision_encoder", "vision", "prepare_inputs_embeds"),
        ("embed_tokens", "embedding", "language_model"),
        ("decoder_model_merged", "decoder_model", "model", "text", "lm_head"),
    )
    CALL: Mapping[str, Any] = {  # type: ignore[misc]
        **dict.fromkeys(OPTIONS),
        "generate_kwargs": None,
        **dict.fromkeys(_HOST),
    }
    TOKENIZER = True
    PACKAGED = True
    KIND: ClassVar[Kind] = PICTURES

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        capacity: int | None = None,
        max_length: int | None = None,
        cache_dtype: str | None = None,
        **options: Any,
    ) -> None:
        self._capacity = max_length if capacity is None else capacity
        self._cache_dtype = cache_dtype
        self._model: CausalLM | None = None
        self._package: Package | None = None
        self._kept = Kept()
        super().__init__(model, tokenizer, **options)
        self._start()

    def _start(self) -> None:
        """Makes the processor."""
        self.processor = VisionProcessor(
            VisionDescription.from_dict(self.package.manifest["processor"]["vision"]),
            engine=self.engine,
        )

    def _take(self, model: Any) -> None:
        raise InputError(
            f"a {type(model).__name__} is not a model",
            "model",
            "Give a model folder, a package or the id of a model.",
        )

    @property
    def package(self) -> Package:
        """The package, which is made of a model folder."""
        if self._package is None:
            assert self.files is not None
            self._package = self.files.package or self._compiled()
        return self._package

    def _compiled(self, lora: LoraConfig | None = None) -> Package:
        """The package of the model's folder. lora: of layers that can get adapters."""
        assert self.files is not None
        root = self.files.root
        files, _ = folder_files(root)
        graphs = {s: name_in(os.path.abspath(root), p) for s, p in self.files.graphs.items()}
        return compile_task(
            files,
            self.KIND.task,
            max_length=self._capacity,
            cache_dtype=self._cache_dtype,
            graphs=graphs,
            target=target_of((self.engine or default_engine()).device),
            compare=False,
            any_size=True,
            any_length=True,
            lora=lora,
        )

    @property
    def model(self) -> CausalLM:
        """The language model, which is loaded on first use."""
        if self._model is None:
            self._model = self._language(self.package)
        return self._model

    def _language(self, package: Package) -> CausalLM:
        kept = self._cache_dtype
        return CausalLM(package, engine=self.engine, cache_dtype=kept, cache_bytes=0)

    def _adapted(self, lora: LoraConfig) -> CausalLM:
        return self._language(self._compiled(lora))

    def session(self, stem: str) -> Any:
        if stem not in self.sessions:
            graphs = list(self.files.graphs.values()) if self.files is not None else []
            kept = self.package.manifest["processor"].get("encoder")
            if stem in self.package.manifest.get("programs", {}) or kept is None:
                self.sessions[stem] = ProgramSession(self.package, stem, self.engine)
            else:  # of pictures of any size, which no plan ahead of time can have
                model = graphs[0] if graphs else self.package.file(kept)  # the first of STEMS
                self.sessions[stem] = EncoderSession(model, kept, self.engine)
        return self.sessions[stem]

    def options(self, given: Mapping[str, Any], where: str = "") -> dict[str, Any]:
        """As Pipeline.options; fields of GenerationConfig are collected in `generate_kwargs`."""
        given = self.generation_fields(given)
        fields = {n: given.pop(n) for n in list(given) if n in GENERATION_FIELDS}
        found = super().options(given, where)
        found["generate_kwargs"] = {**(found["generate_kwargs"] or {}), **fields}
        return found

    @memory_in_words
    def __call__(  # type: ignore[override]
        self, images: Any = None, text: Any = None, **options: Any
    ) -> list[Any]:
        """Answers; see the class.

        Args:
            images: a picture, a list of them, or for several texts a list of such lists; or a chat.
            text: a text, a chat, or a list of these.
            options: of the call.

        Raises:
            InputError: an input or an option is not valid. Aborted: by the signal.
        """
        given = self.options(options)
        if isinstance(images, Mapping) and text is None and "text" in images:
            images, text = images.get("images", images.get("image")), images["text"]
        elif isinstance(images, Iterator):
            images = list(images)
        asks, several = asks_of(images, text, self.KIND)
        if self.closed:
            raise InputError(
                "the pipeline is closed", self.task, "Create it again with `pipeline`."
            )
        results: list[Any] = []
        for ask in asks:
            with self.lock:
                records = self.one(ask, given)
            results += [records] if several else records
        return results

    def one(self, given: Ask, options: dict[str, Any]) -> list[dict[str, Any]]:
        """The results of one input."""
        continued = goes_on(given, options["continue_final_message"])
        fields = dict(options["generate_kwargs"] or {})
        details = fields.pop("return_dict_in_generate", None)
        if options["stop_sequence"] is not None:
            fields["eos_token_id"] = self._encode(options["stop_sequence"], False)[:1]
        features = self._features(given, options, continued)
        prompt = features.prompt.ids
        out = generate(
            cast("Any", Prompted(self.model, features)),
            prompt,
            options["generation_config"] or self._defaults(fields),
            tokenizer=self.tokenizer,
            response_format=options["response_format"],
            return_dict_in_generate=True,
            **{n: options[n] for n in _HOST if n != "generation_config"},
            **fields,
        )
        made = cast("GenerateOutput", out)
        output = Output(made["sequences"], made["finish_reasons"])
        decoding: dict[str, Any] = {
            "skip_special_tokens": options["skip_special_tokens"] is not False
        }
        if options["clean_up_tokenization_spaces"] is not None:
            decoding["clean_up_tokenization_spaces"] = options["clean_up_tokenization_spaces"]
        decode = partial(self.tokenizer.decode, **decoding)
        shown = {**options, "return_dict_in_generate": details}
        return records_of_ask(given, prompt, output, continued, shown, decode)

    def _defaults(self, fields: Mapping[str, Any]) -> Any:
        own = GenerationConfig.from_dict(model_defaults(cast("Any", self.model)))
        eos = getattr(self.tokenizer, "eos_token_id", None)
        return defaults_of_call(task_defaults(own, DEFAULTS, eos), fields)

    def _encode(self, text: str, special: bool) -> list[int]:
        ids = self.tokenizer.encode(text, add_special_tokens=special)
        return list(getattr(ids, "ids", ids))

    def _features(self, ask: Ask, options: Mapping[str, Any], continued: bool) -> Features:
        """The prompt of an input, with the features of its pictures."""
        made = self.prepared(ask, [self._text(ask, continued)], options)
        check_room(made.prompts[0], self.model.max_length, self.task)
        return made.features(made.prompts[0], options["signal"])

    def prepared(self, ask: Ask, texts: Sequence[str], options: Mapping[str, Any]) -> Asked:
        """Prompts on the pictures of an input, which are read once.

        Args:
            ask: the input.
            texts: of the chat template, or the caller's.
            options: of the call.
        """
        rule: Any = self.package.manifest["processor"]["pictures"]
        videos: Any = self.package.manifest["processor"].get("videos")
        chosen, own = chosen_of(videos, ask.pictures, ask.videos), self.processor.description
        pictures = [[read_picture(ask.pictures[i]) for i in at] for at, _ in chosen.taken]
        check_frames(videos, chosen, [[(p.height, p.width) for p in of] for of in pictures])
        makers = [self.processor.of(r) for r in rules_of(own.rule, videos, chosen)]
        seen = [maker.seen(of[0]) for maker, of in zip(makers, pictures)]
        all_shown = [shown(rule, one) for one in seen]
        decoder, prompts = self.model.package.manifest["decoder"], []
        for given in texts:
            text = prompt_text(rule, given, still(chosen, all_shown))
            text = with_videos(videos, text, chosen, all_shown)
            tokens = replaced_by(videos, rule["token"])
            prompt = self._placed(text, tokens, all_shown, options)
            if decoder.get("positions"):
                prompt = with_positions(prompt, moving(videos, chosen, all_shown))
            prompts.append(with_reach(prompt, decoder.get("sees")))

        def parts(signal: Any) -> list[bytes]:
            return [
                self._rows(maker, of, what, one, signal)
                for maker, of, what, one in zip(makers, pictures, seen, all_shown)
            ]

        return Asked(prompts, all_shown, parts)

    def _placed(
        self, text: str, tokens: list[str], texts: list[Shown], options: Mapping[str, Any]
    ) -> Prepared:
        """A prompt with the places of its features. Raises InputError."""
        special = options["add_special_tokens"]
        if special is None:
            bos = getattr(self.tokenizer, "bos_token", None)
            special = not (bos and text.startswith(bos))
        found = [self.tokenizer.token_to_id(token) for token in tokens]
        ids = self._encode(text, special)
        return placed(ids, [place for place in found if place is not None], texts, self.task)

    def text_of(self, messages: list[dict[str, Any]], prompt: bool, continued: bool = False) -> str:
        """The text of messages, with placeholders for their pictures.

        Args:
            messages: for the chat template.
            prompt: whether the beginning of an answer follows.
            continued: whether the last one is continued.
        """
        template = getattr(self.tokenizer, "apply_chat_template", None)
        if template is None:
            raise InputError(
                "the tokenizer that was passed has no method apply_chat_template",
                self.task,
                "Pass text instead of messages.",
            )
        return str(
            template(
                open_messages(self._messages(messages), continued),
                add_generation_prompt=prompt,
                continue_final_message=continued,
                tokenize=False,
            )
        )

    def _text(self, ask: Ask, continued: bool) -> str:
        """The text of an input, with placeholders for its pictures."""
        if ask.messages is None:
            return str(ask.given)
        return self.text_of(ask.messages, not continued, continued)

    def _messages(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The messages for the chat template."""
        return messages

    def _rows(
        self, maker: VisionProcessor, pictures: list[Picture], what: Seen, text: Shown, signal: Any
    ) -> bytes:
        """The features of a picture, or of frames seen together, float32 [count, hidden]."""
        first = pictures[0]
        size = f"{first.height} {first.width} {what.resized} {maker is self.processor} ".encode()
        key = hashlib.sha256(size + b"".join([one.pixels for one in pictures])).hexdigest()
        found = self._kept.take(key)
        if found is None:
            pieces = list(self._encoded(maker, pictures, signal))
            found = self._joined(what, pieces) if len(pieces) > 1 else pieces[0]
            self._kept.put(key, found, len(found))
        count = len(found) // (4 * self.model.package.manifest["decoder"]["features"])
        check_rows(count, text, self.task)
        return bytes(found)

    def _joined(self, what: Seen, pieces: list[bytes]) -> bytes:
        """The features of a picture, of those of its pieces."""
        rule: Any = self.package.manifest["processor"]["pictures"]
        if rule["rule"] != "anyres":
            return b"".join(pieces)
        grid = grid_of(rule["count"], rule["sizes"], rule["most"], what)
        size = 4 * self.model.package.manifest["decoder"]["features"]
        return joined(grid, pieces, size, lambda: self.session("mix"))

    def _encoded(
        self, maker: VisionProcessor, pictures: list[Picture], signal: Any
    ) -> Iterator[bytes]:
        """The features of a picture, piece by piece. Raises Aborted."""
        vision = self.session("vision")
        if isinstance(vision, EncoderSession):
            if is_set(signal):
                raise Aborted("generation was aborted", self.task)
            yield vision.features(maker, pictures, self.model.package.manifest["decoder"])
            return
        (name,) = vision.inputs
        outputs = features_of([*vision.outputs])
        width = self.model.package.manifest["decoder"]["features"]
        values, _ = maker(pictures[0])
        data = memoryview(bytes(values.tobytes()))
        count = values.shape[0]
        size = len(data) // count
        dims = [1] * (len(vision.inputs[name].shape) - len(values.shape)) + [1, *values.shape[1:]]
        for i in range(count):
            if is_set(signal):
                raise Aborted("generation was aborted", self.task)
            piece = Array(dims, "float32", data[size * i : size * (i + 1)])
            yield feature_rows(vision.run(outputs, {name: piece}), width, "vision")

    def close(self) -> None:
        """Frees the model."""
        if self._model is not None:
            self._model.free()
        if isinstance(self.processor, VisionProcessor):
            self.processor.close()
        self._kept.clear()
        super().close()
