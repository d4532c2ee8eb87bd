"""How rows are cut into pieces, and what a packed row scores."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from colocated_runtime.worker.packing import cut_further, packed_pieces, padded_pieces  # noqa: E402

lengths = st.lists(st.integers(1, 100), min_size=1, max_size=30)


@given(lengths, st.integers(1, 300))
def test_each_row_is_in_one_piece(lengths, tokens):
    for cut in (packed_pieces, padded_pieces):
        pieces = cut(lengths, tokens)
        assert sorted(row for piece in pieces for row in piece) == list(range(len(lengths)))


@given(lengths, st.integers(1, 300))
def test_no_piece_of_several_rows_is_over_the_budget(lengths, tokens):
    for piece in packed_pieces(lengths, tokens):
        assert len(piece) == 1 or sum(lengths[row] for row in piece) <= tokens
    for piece in padded_pieces(lengths, tokens):
        assert len(piece) == 1 or len(piece) * max(lengths[row] for row in piece) <= tokens


@given(lengths, st.integers(1, 300), st.integers(0, 30))
def test_cut_further_has_the_same_rows_in_more_pieces(lengths, tokens, more):
    pieces = packed_pieces(lengths, tokens)
    count = min(len(pieces) + more, len(lengths))
    cut = cut_further(pieces, count)
    assert len(cut) == count
    assert sorted(row for piece in cut for row in piece) == list(range(len(lengths)))
    assert all(cut)


def test_one_long_row_does_not_decide_for_the_others():
    """Eight short completions and one of four times their length; plain micro-batches of three are padded to it."""
    mixed = [10, 10, 10, 10, 40, 10, 10, 10, 10]
    assert packed_pieces(mixed, 40) == [[0, 1, 2, 3], [4], [5, 6, 7, 8]]
    assert padded_pieces(mixed, 40) == [[4], [0, 1, 2, 3], [5, 6, 7, 8]]
