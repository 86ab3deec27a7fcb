"""The contents of overlapping windows are those of merging all slices of each window."""

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.operators.windows.kept_slices import SlidingContents
from bicycle_sdk.windows import Window

KEYS = st.sampled_from("abc")
SLICES = st.dictionaries(st.integers(0, 30), st.dictionaries(KEYS, st.integers(0, 99)), max_size=12)


class Lists:
    """Contents that are lists, merged in place, so that a wrong change or order is seen."""

    @staticmethod
    def merged(first, second):
        first += second
        return first

    @staticmethod
    def copy(content):
        return list(content)


def merged_by_window(slices, window):
    found = {}
    for start in sorted(slices):
        if window.start <= start < window.end:
            for key, content in slices[start].items():
                found[key] = found.get(key, []) + content
    return found


@given(
    given=SLICES, size=st.integers(1, 12), ends=st.lists(st.integers(1, 45), unique=True),
    grows=st.booleans(), epoch_ms=st.integers(1, 50),
)  # fmt: skip
def test_each_window_has_the_contents_of_its_slices(given, size, ends, grows, epoch_ms):
    slices = {
        start: {key: [(start, number)] for key, number in contents.items()}
        for start, contents in given.items()
    }
    before = repr(slices)
    sliding = SlidingContents(Lists(), slices.__getitem__)

    for _, epoch in groupby(sorted(ends), key=lambda end: end // epoch_ms):
        due = list(epoch)
        sliding.offer([start for start in sorted(slices) if start < due[-1]])
        for end in due:
            # Windows that grow have the start of their period.
            window = Window((end - 1) // size * size if grows else end - size, end)
            assert sliding.of_window(window) == merged_by_window(slices, window)

    assert repr(slices) == before
