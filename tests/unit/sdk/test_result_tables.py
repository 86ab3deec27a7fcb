"""Result tables, as text and as HTML."""

from datetime import UTC, date, datetime, time
from decimal import Decimal

from bicycle_sdk.result_tables import ResultTable, text_table, value_text

ROWS = [{"n": 12, "who": "ada"}, {"n": -7, "who": None}]
COLUMNS = {"n": "BIGINT", "who": "VARCHAR"}


def test_a_result_is_a_list_of_rows_that_shows_itself_as_a_table():
    table = ResultTable(ROWS, columns=COLUMNS)

    assert table == ROWS
    assert repr(table).splitlines() == [
        "     n  who",
        "BIGINT  VARCHAR",
        "    12  ada",
        "    -7  NULL",
        "(2 rows)",
    ]


def test_a_result_without_rows_shows_its_columns():
    assert repr(ResultTable([], columns=COLUMNS)) == "     n  who\nBIGINT  VARCHAR\n(0 rows)"
    assert repr(ResultTable(ROWS[:1], columns=COLUMNS)).endswith("(1 row)")


def test_a_notebook_gets_html_in_which_names_and_values_are_escaped():
    rows = [{"<b>": "<script>alert('x')</script>", "n": None}]
    html = ResultTable(rows, columns={"<b>": "VARCHAR", "n": "BIGINT"})._repr_html_()

    assert "<script>" not in html
    assert "<b>" not in html
    assert "<td>&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;</td>" in html
    assert '<td style="text-align: right"><em>NULL</em></td>' in html
    assert html.count("<tr>") == 2


def test_a_text_of_the_word_null_is_no_null_in_html():
    assert "<td>NULL</td>" in ResultTable([{"a": "NULL"}], columns={"a": "VARCHAR"})._repr_html_()


def test_values_are_texts_in_one_line():
    given = {
        "\x1b[31mred\tx\u202e": r"\x1b[31mred\tx\u202e",
        1.5: "1.5",
        False: "false",
        Decimal("0.10"): "0.10",
        date(2026, 1, 2): "2026-01-02",
        time(3, 4): "03:04:00",
        datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC): "2026-01-02 03:04:05.678",
        b"\x01\xff": r"\x01ff",
        ("é", None, Decimal(2)): '["é", null, "2"]',
    }

    assert [value_text(value) for value in given] == list(given.values())


def test_columns_of_numbers_are_aligned_to_the_right_below_their_heading():
    assert text_table(("a\nX", "b\nY"), [("1", "2"), ("333", "44")], are_numbers=(True, False)) == [
        "  a  b",
        "  X  Y",
        "  1  2",
        "333  44",
    ]
