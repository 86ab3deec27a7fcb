"""What stands in the files of pipelines that are tried on columns and record by record."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.examples import examples

SETTINGS = settings(
    max_examples=examples(80), deadline=None, suppress_health_check=list(HealthCheck)
)
NUMBERS = st.one_of(
    st.integers(-9, 9), st.sampled_from([2**53, 2**63 - 1, 2**63, -(2**63)]),
    st.floats(allow_nan=False), st.sampled_from([0.0, -0.0, 1e308]),
)  # fmt: skip
TEXTS = st.sampled_from(["", "a", "b", "B ", "ß", "12", "1.5", "x1", "2026-03-01T00:00:00Z"])
