"""WindowSlices of aligned windows against windows that are tried one by one."""

from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.operators.preaggregation.slices import WindowSlices
from bicycle_sdk.windows import cumulative_windows, sliding_windows

WINDOWS = st.one_of(
    st.builds(
        lambda size, slide, offset: sliding_windows(size, slide, offset=offset),
        st.integers(1, 30),
        st.integers(1, 30),
        st.integers(-40, 40),
    ),
    st.builds(
        lambda step, count, offset: cumulative_windows(step, step * count, offset=offset),
        st.integers(1, 12),
        st.integers(1, 6),
        st.integers(-40, 40),
    ),
)
TIMES = st.integers(-100, 100)


@given(windows=WINDOWS, time=TIMES)
def test_a_slice_lies_in_the_windows_of_each_of_its_times(windows, time):
    slices = WindowSlices(windows)
    (start,) = slices.starts([time])

    if slices.outside([start]):
        assert windows.windows_of(time) == []
    else:
        assert sorted(slices.windows_of(start)) == windows.windows_of(time)
        assert slices.last_end(start) == windows.windows_of(time)[-1].end


@given(windows=WINDOWS, first=TIMES, second=TIMES)
def test_times_share_a_slice_only_when_they_share_all_windows(windows, first, second):
    starts = WindowSlices(windows).starts([first, second])

    if starts[0] == starts[1]:
        assert windows.windows_of(first) == windows.windows_of(second)


@given(windows=WINDOWS, time=TIMES, after=TIMES, until=TIMES)
def test_windows_between_two_moments_are_those_that_end_there(windows, time, after, until):
    slices = WindowSlices(windows)
    (start,) = slices.starts([time])
    if slices.outside([start]):
        return

    found = list(slices.windows_between(start, after, until))
    assert found == [each for each in windows.windows_of(time) if after < each.end <= until]


@given(windows=WINDOWS, time=TIMES, moment=TIMES)
def test_the_next_end_after_a_moment_is_the_least_of_the_ends_behind_it(windows, time, moment):
    slices = WindowSlices(windows)
    (start,) = slices.starts([time])
    if slices.outside([start]):
        return

    ends = [window.end for window in windows.windows_of(time) if window.end > moment]
    assert slices.first_end_after(start, moment) == min(ends, default=None)


@given(windows=WINDOWS, time=TIMES, closed=TIMES)
def test_slices_before_the_least_open_window_are_closed_and_no_others(windows, time, closed):
    slices = WindowSlices(windows)
    (start,) = slices.starts([time])
    if slices.outside([start]):
        return

    is_closed = all(window.end <= closed for window in windows.windows_of(time))
    assert (start < slices.least_open(closed)) == is_closed
