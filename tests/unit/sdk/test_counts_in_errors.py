"""A count in the text of an error has its noun in the right number."""

import pytest

from bicycle_sdk.errors import BicycleError

ROW = BicycleError.row("BIC-0000", "{total:count record} failed", cause="-", fix="-")


@pytest.mark.parametrize(
    ("total", "text"), [(1, "1 record failed"), (0, "0 records failed"), (1200, "1,200 records")]
)
def test_a_count_has_its_noun_in_the_right_number(total, text):
    assert ROW(total=total).to_json()["message"].startswith(text)
