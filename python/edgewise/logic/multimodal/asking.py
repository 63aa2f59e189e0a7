"""The tasks image-text-to-text and audio-text-to-text: their inputs and results, as transformers'
pipelines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import InputError
from ..generation.run import Output
from ..native import frames, listed, part, size

TASK = "image-text-to-text"
DEFAULTS: dict[str, Any] = {"max_new_tokens": 256}
"""transformers' defaults for this task."""
OPTIONS = (
    "return_full_text",
    "return_tensors",
    "skip_special_tokens",
    "clean_up_tokenization_spaces",
    "continue_final_message",
    "add_special_tokens",
    "stop_sequence",
    "response_format",
)
"""Options of a call besides fields of GenerationConfig."""


@dataclass(frozen=True)
class Kind:
    """What a task is asked about.

    Attributes:
        task: its name.
        part: type of a part of a message.
        word: for errors.
        option: of a call.
        sources: fields of a part of a message that have it.
    """

    task: str
    part: str
    word: str
    option: str
    sources: list[str]


PICTURES = Kind(TASK, "image", "picture", "images", ["image", "url", "path"])
SOUNDS = Kind("audio-text-to-text", "audio", "sound", "audio", ["audio", "url", "path"])


@dataclass
class Clip:
    """A video of a message.

    Attributes:
        first: index of its first frame among the pictures.
        count: of its frames.
        rate: frames per second; None: unknown.
    """

    first: int
    count: int
    rate: float | None


@dataclass
class Ask:
    """An input.

    Attributes:
        given: the text, or the messages with their pictures.
        messages: for the chat template, with parts {"type": "image"}; None: it is a text.
        pictures: as the caller gave them, in order, frames of videos among them.
        videos: those that are frames.
    """

    given: Any
    messages: list[dict[str, Any]] | None
    pictures: list[Any]
    videos: list[Clip] = field(default_factory=list)


def asks_of(images: Any, text: Any, kind: Kind = PICTURES) -> tuple[list[Ask], bool]:
    """The inputs of a call.

    Args:
        images: a picture, a list of them, or for several texts or chats a list of such lists; a
            chat or chats, where there is no text.
        text: a text, a chat, which is a list of messages {"role", "content"}, or a list of these.
        kind: whether these are pictures or sounds.

    Returns:
        (the inputs, whether a list of chats was given)

    Raises:
        InputError: it is something else, or pictures are missing or left over.
    """
    if text is None and _is_asked(images):
        text, images = images, None
    if isinstance(text, str):
        return [Ask(text, None, _pictures(images))], False
    several = listed(text)
    if several is None or not several:
        raise _nothing(kind)
    if _is_message(several[0]):
        return [_chat(several, _pictures(images), kind)], False
    each = _for_each(images, len(several), kind)
    asks: list[Ask] = []
    for i, one in enumerate(several):
        messages = listed(one)
        if isinstance(one, str):
            asks.append(Ask(one, None, each[i]))
        elif messages is not None and messages and _is_message(messages[0]):
            asks.append(_chat(messages, each[i], kind))
        else:
            raise _nothing(kind)
    return asks, asks[0].messages is not None


def _nothing(kind: Kind) -> InputError:
    return InputError(
        "the input is neither text nor chat messages",
        kind.task,
        f'Give text="...", {kind.option}=..., or messages like [{{"role": "user", "content":'
        f' [{{"type": "{kind.part}", "{kind.part}": ...}}, {{"type": "text", "text":'
        ' "Hello"}]}].',
    )


def _is_message(given: Any) -> bool:
    return isinstance(given, dict) and "role" in given and "content" in given


def _is_asked(given: Any) -> bool:
    """Whether it is a chat, or a list of chats."""
    several = listed(given)
    if several is None or not several:
        return False
    inner = listed(several[0])
    return _is_message(several[0]) or (
        inner is not None and len(inner) > 0 and _is_message(inner[0])
    )


def _pictures(images: Any) -> list[Any]:
    """The pictures of one input."""
    if images is None:
        return []
    several = listed(images)
    return [images] if several is None else several


def _for_each(images: Any, count: int, kind: Kind) -> list[list[Any]]:
    """The pictures of each of several inputs. Raises InputError."""
    if images is None:
        return [[] for i in range(count)]
    several = _pictures(images)
    if len(several) != count:
        raise InputError(
            f"there are {kind.word}s for {len(several)} texts, and {count} texts",
            kind.option,
            f"Give a {kind.word}, or a list of {kind.word}s, for each text.",
        )
    return [_pictures(one) for one in several]


def _chat(given: list[Any], images: list[Any], kind: Kind) -> Ask:
    """A chat. images: of the parts that have none. Raises InputError."""
    messages: list[dict[str, Any]] = []
    filled: list[dict[str, Any]] = []
    pictures: list[Any] = []
    videos: list[Clip] = []
    left = list(images)
    for message in given:
        if not _is_message(message):
            raise _nothing(kind)
        content: Any = message["content"]
        parts = listed(content)
        if parts is None:
            if not isinstance(content, str):
                raise InputError(
                    "the content of a message is neither a text nor a list of parts",
                    kind.task,
                    'Give a text, or parts like {"type": "text", "text": "..."}.',
                )
            messages.append(message)
            filled.append(message)
            continue
        shown: list[Any] = []
        whole: list[Any] = []
        for one in parts:
            found = _frames_of(one, kind)
            if found is not None:
                video: dict[str, Any] = one
                rate: Any = video.get("fps")
                videos.append(Clip(len(pictures), len(found), rate))
                pictures += found
                clip: dict[str, Any] = {"type": "video"}
                shown.append(clip)
                whole.append(one)
                continue
            picture = _picture_of(one, left, kind)
            if picture is None:
                shown.append(one)
                whole.append(one)
            else:
                place: dict[str, Any] = {"type": kind.part}
                there: dict[str, Any] = {"type": kind.part, kind.part: picture}
                pictures.append(picture)
                shown.append(place)
                whole.append(there)
        seen: dict[str, Any] = {**message, "content": shown}
        full: dict[str, Any] = {**message, "content": whole}
        messages.append(seen)
        filled.append(full)
    if left:
        raise InputError(
            f"{len(left)} of the {kind.word}s have no place in the messages",
            kind.option,
            f'Put a part {{"type": "{kind.part}"}} into the messages for each {kind.word}.',
        )
    return Ask(filled, messages, pictures, videos)


def _picture_of(given: Any, left: list[Any], kind: Kind) -> Any:
    """The picture of a part of a message; None: it is a text.

    Args:
        given: the part.
        left: pictures for parts that have none; the first one is taken out.

    Raises:
        InputError: there is none, or the part is of an unknown kind.
    """
    if not isinstance(given, dict):
        raise _unknown("a part of a message is no object", kind)
    of: Any = given.get("type")
    if of == "text" and isinstance(given.get("text"), str):
        return None
    if of == "image_url" and kind.part == "image":  # of OpenAI's messages
        inner: Any = given.get("image_url")
        address: Any = inner.get("url") if isinstance(inner, dict) else inner
        if address is not None:
            return address
    if of != kind.part:
        raise _unknown(f"a part of a message has the type '{of}'", kind)
    for name in kind.sources:
        found: Any = given.get(name)
        if found is not None:
            return found
    if not left:
        raise InputError(
            f"a part of a message has no {kind.word}",
            kind.task,
            f'Give {{"type": "{kind.part}", "{kind.part}": ...}}, or as many {kind.option}= as'
            " there are such parts.",
        )
    return left.pop(0)


def _frames_of(given: Any, kind: Kind) -> list[Any] | None:
    """The frames of a part of a message that is a video; None: it is another part.

    Raises:
        InputError: they are no list of pictures, or their rate is no number.
    """
    if not isinstance(given, dict) or given.get("type") != "video" or kind.part != "image":
        return None
    found = frames(given.get("video"))
    if found is None or not found:
        raise InputError(
            "a video is not a list of pictures",
            kind.task,
            'Give its frames: {"type": "video", "video": [picture, ...], "fps": 24}.',
        )
    rate: Any = given.get("fps")
    if rate is not None and not isinstance(rate, (int, float)):
        raise InputError("the rate of a video is no number", "fps", "Give frames per second.")
    return found


def _unknown(what: str, kind: Kind) -> InputError:
    return InputError(
        what,
        kind.task,
        'Parts are {"type": "text", "text": "..."} and'
        f' {{"type": "{kind.part}", "{kind.part}": ...}}.',
    )


def goes_on(ask: Ask, wanted: bool | None) -> bool:
    """Whether the last message of a chat is continued. Default: if it is the assistant's."""
    if ask.messages is None:
        return False
    role: Any = ask.messages[-1]["role"]
    return bool(role == "assistant") if wanted is None else wanted


def open_messages(messages: list[dict[str, Any]], open_: bool) -> list[dict[str, Any]]:
    """Messages of which the last one can be continued: its parts are one text.

    Raises:
        InputError: it ends with a picture.
    """
    content: Any = messages[-1]["content"]
    parts = listed(content)
    if not open_ or parts is None:
        return messages
    last: Any = parts[-1] if parts else None
    if not isinstance(last, dict) or last.get("type") != "text" or len(parts) > 1:
        raise InputError(
            "the message that is to be continued is not one text",
            TASK,
            "End with a message of one text, or give continue_final_message: false.",
        )
    text: Any = last["text"]
    return [*messages[:-1], {**messages[-1], "content": text}]


def records_of_ask(
    ask: Ask,
    prompt: list[int],
    output: Output,
    continued: bool,
    options: Mapping[str, Any],
    decode: Callable[[list[int]], str],
) -> list[dict[str, Any]]:
    """The results of an input.

    Args:
        ask: the input.
        prompt: its token ids.
        output: the sequences.
        continued: whether the last message of a chat was continued.
        options: return_full_text, return_tensors, return_dict_in_generate.
        decode: the text of token ids.
    """
    records: list[dict[str, Any]] = []
    for i, ids in enumerate(output.sequences):
        record: dict[str, Any] = {"input_text": ask.given}
        if options.get("return_tensors"):
            record["generated_token_ids"] = ids
        else:
            # both are decoded, since the text of a token can depend on those before it
            whole = decode(ids)
            new = part(whole, size(decode(prompt)), size(whole))
            full = options.get("return_full_text") is not False
            record["generated_text"] = _full(ask, new, continued) if full else new
        if options.get("return_dict_in_generate"):
            record["finish_reasons"] = output.finish_reasons[i]
        records.append(record)
    return records


def _full(ask: Ask, new: str, continued: bool) -> Any:
    """The input with the new text."""
    if isinstance(ask.given, str):
        return ask.given + new
    messages: list[dict[str, Any]] = list(ask.given)
    if not continued:
        answer: dict[str, Any] = {"role": "assistant", "content": new}
        return [*messages, answer]
    last = messages[-1]
    parts = listed(last["content"])
    if parts is None:
        text: str = last["content"]
        return [*messages[:-1], {**last, "content": text + new}]
    final: dict[str, Any] = parts[-1]
    before: str = final["text"]
    made: dict[str, Any] = {**final, "text": before + new}
    return [*messages[:-1], {**last, "content": [*parts[:-1], made]}]
