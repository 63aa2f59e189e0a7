"""Plans of encoder-decoder models on both forms."""

import numpy as np
import pytest
from edgewise.errors import InputError

from .forms import both, module


@both
def test_plans_of_the_encoder(form):
    encoder_for = module(form, "generation.encoder_decoder").encoder_for
    assert [encoder_for([4, 16], n, "tokens") for n in (1, 4, 5, 16)] == [0, 0, 1, 1]
    for count, unit, text in (
        (0, "tokens", "there are no tokens"),
        (17, "tokens", "has 17 tokens, and the model takes at most 16.*truncation"),
        (17, "positions", "has 17 positions, .*chunk_length_s"),
    ):
        with pytest.raises(InputError, match=text):
            encoder_for([4, 16], count, unit)


@both
def test_plans_for_times_of_words(form):
    logic = module(form, "generation.encoder_decoder")
    assert [logic.aligner_for([8, 32], n, 4, 50, 50) for n in (5, 8, 9, 32)] == [0, 0, 1, 1]
    with pytest.raises(InputError, match="without alignment heads"):
        logic.aligner_for([], 5, 4, 50, 50)
    for count, skip, length in ((33, 4, 50), (5, 5, 50), (5, -1, 50), (5, 4, 0), (5, 4, 51)):
        with pytest.raises(InputError, match=f"{count} tokens, {skip} of which are skipped"):
            logic.aligner_for([8, 32], count, skip, length, 50)
    assert logic.shares(6, 2, 8) == [0, 0, 0.25, 0.25, 0.25, 0.25, 0, 0]


@both
def test_positions_are_reflected_as_by_numpy(form):
    reflected = module(form, "generation.encoder_decoder").reflected
    for length, positions, width in ((50, 50, 7), (9, 50, 7), (4, 6, 7), (20, 21, 1)):
        found = reflected(length, positions, width)
        half = width // 2
        expected = np.pad(np.arange(length), half, mode="reflect").tolist()
        assert found[: length + 2 * half] == expected and len(found) == positions + width - 1
        assert 0 <= min(found) and max(found) < length
