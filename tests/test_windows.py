"""Where tokens fall, against a plain loop over documents."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posgeom import PosgeomError
from posgeom.windows import Window

batches = st.lists(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=6), max_size=4
)


def by_hand(batches, n, align):
    """(fold, position) of each token, or None; batch by batch."""
    written = [0] * 4
    for batch in batches:
        places = []
        for length, fold in batch:
            for t in range(length):
                position = {
                    "start": t,
                    "end": length - 1 - t,
                    "packed": (written[fold] + t) % n,
                }[align]
                places.append((fold, position) if position < n else None)
            written[fold] += length
        yield places


@pytest.mark.parametrize("align", ["start", "end", "packed"])
@given(batches=batches, n=st.integers(2, 5))
def test_tokens_fall_where_a_plain_loop_puts_them(align, batches, n):
    window = Window(n, align, 4)
    for batch, places in zip(batches, by_hand(batches, n, align), strict=True):
        lengths, folds = (
            (np.array(x, dtype=np.int64) for x in zip(*batch, strict=True))
            if batch
            else (
                np.zeros(0, dtype=np.int64),
                np.zeros(0, dtype=np.int64),
            )
        )
        rows, kept = window.place(lengths, folds)
        found = [divmod(row, n) if keep else None for row, keep in zip(rows, kept, strict=True)]
        assert found == places


def test_a_grid_takes_whole_documents_only():
    window = Window(4, "grid", 2)
    rows, kept = window.place(np.array([4, 4]), np.array([0, 1]))
    assert rows.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert kept.all()
    with pytest.raises(PosgeomError, match="3 tokens, the grid 4 cells"):
        window.place(np.array([4, 3]), np.array([0, 1]))


@pytest.mark.parametrize(("n", "align"), [(1, "start"), (0, "end"), (4, "middle")])
def test_windows_that_make_no_sense_are_refused(n, align):
    with pytest.raises(PosgeomError, match="--"):
        Window(n, align, 4)
