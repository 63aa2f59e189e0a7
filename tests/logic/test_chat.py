"""Special tokens of configurations, and chats whose last message is continued."""

import pytest
from edgewise.errors import TokenizerError

from .forms import both, module


@both
def test_special_tokens(form):
    chat = module(form, "text.chat")
    config = {"bos_token": "<s>", "pad_token": {"content": "<p>"}, "eos_token": None, "x_token": 3}
    others = {"eos_token": "</s>", "bos_token": "other"}
    found = chat.read_special_tokens(config, others, "config")
    assert found == {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<p>"}
    for wrong in (3, {"content": 3}, ["<s>"]):
        with pytest.raises(TokenizerError, match="config: mask_token is neither a string nor"):
            chat.read_special_tokens({"mask_token": wrong}, {}, "config")


@both
def test_tokens_around_texts(form):
    """As LlamaTokenizerFast puts them: add_bos_token is true where it is missing."""
    chat = module(form, "text.chat")
    llama = {"tokenizer_class": "LlamaTokenizerFast"}
    for config, wanted in (
        ({}, None),
        (llama, None),
        ({"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True}, None),
        ({**llama, "add_bos_token": True}, ["bos_token"]),
        ({**llama, "add_eos_token": True}, ["bos_token", "eos_token"]),
        ({**llama, "add_bos_token": False, "add_eos_token": True}, ["eos_token"]),
        ({**llama, "add_bos_token": None}, []),
        ({"tokenizer_class": "GemmaTokenizer", "add_eos_token": False}, ["bos_token"]),
    ):
        assert chat.tokens_around(config) == wanted


@both
def test_one_of_several_templates(form):
    chat = module(form, "text.chat")
    tools, plain = {"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}
    for given, wanted, for_tools in (
        ("x", "x", "x"),
        (None, None, None),
        ([], None, None),
        ([plain], "d", "d"),
        ([tools, plain], "d", "t"),
        ([tools], "t", "t"),
        ([3, {"name": "default"}, tools], "t", "t"),
        ([{"name": "tool_use"}, plain], "d", "d"),
    ):
        assert chat.default_template(given) == wanted
        assert chat.tool_template(given) == for_tools


@both
def test_a_message_that_is_continued(form):
    """What transformers' apply_chat_template keeps of a rendered text."""
    chat = module(form, "text.chat")
    answer = {"role": "assistant", "content": " Yes, \U0001f600 "}
    messages = [{"role": "user", "content": "Hi"}, answer]
    final = chat.final_text(messages, False, "template")
    opened = chat.left_open(messages, final)
    assert opened[0] == messages[0] and messages[1]["content"] == " Yes, \U0001f600 "
    content = opened[1]["content"]
    text = f"\U0001f600|{content}|<end>"
    assert chat.cut_open(text, final, "template") == "\U0001f600| Yes, \U0001f600 "
    stripped = f"|{content.strip()}|<end>"
    assert chat.cut_open(stripped, final, "template") == "|Yes, \U0001f600"
    for wrong in ("", chat.MARK, "Yes, \U0001f600"):
        with pytest.raises(TokenizerError, match="drops the message"):
            chat.cut_open(wrong, final, "template")
    with pytest.raises(TokenizerError, match="exclude each other"):
        chat.final_text(messages, True, "template")
    for wrong in ([], [{"role": "user"}], [{"role": "user", "content": []}]):
        with pytest.raises(TokenizerError, match="needs a last message of text"):
            chat.final_text(wrong, False, "template")
