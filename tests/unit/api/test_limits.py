"""Limits of rate and size, and the audit log that keeps what was refused."""

import pytest

from bicycle_streams.access.errors import RATE_EXCEEDED
from bicycle_streams.access.limits import LimitOptions, Limits, RequestRate
from bicycle_streams.access.roles import LOCAL, NOBODY, Identity, Role
from tests.raising import raises
from tests.unit.api.asking import asked_of

FEW = LimitOptions(
    reads=RequestRate(burst=3, per_second=1), writes=RequestRate(burst=1, per_second=0.5),
    failures=RequestRate(burst=2, per_second=0.1),
)  # fmt: skip
ADA = Identity(name="ada", role=Role.ADMIN, token="1")


def test_a_store_empties_and_fills_with_time():
    now = [0.0]
    limits = Limits(FEW, seconds=lambda: now[0])
    for _ in range(3):
        limits.take(ADA, "", is_write=False)
    with raises(RATE_EXCEEDED) as caught:
        limits.take(ADA, "", is_write=False)
    assert caught.value.facts["wait_s"] == 1
    limits.take(ADA, "", is_write=True)  # Another store.
    limits.take(NOBODY, "192.0.2.1", is_write=False)  # Somebody else.

    now[0] += 1

    limits.take(ADA, "", is_write=False)
    with raises(RATE_EXCEEDED):
        limits.take(ADA, "", is_write=False)


def test_who_is_local_is_not_limited_and_addresses_are_told_apart():
    limits = Limits(FEW, seconds=lambda: 0.0)
    for number in range(100):
        limits.take(LOCAL, "127.0.0.1", is_write=True)
        limits.take(NOBODY, f"192.0.2.{number}", is_write=True)
    with raises(RATE_EXCEEDED):
        limits.take(NOBODY, "192.0.2.1", is_write=True)


@pytest.fixture
def ask(tmp_path):
    with asked_of(tmp_path / "home", needs_login=True, limits=FEW) as found:
        yield found


def test_too_many_requests_are_told_when_to_come_again(ask):
    words = {"authorization": f"Bearer {ask.token()}"}

    codes = [ask("GET", "/api/v1/jobs", **words).code for _ in range(3)]
    over = ask("GET", "/api/v1/jobs", **words)

    assert codes == [200] * 3
    assert (over.code, over.json["code"]) == (429, "BIC-2326")
    assert int(over.headers["retry-after"]) >= 1


def test_who_guesses_tokens_is_stopped_and_good_tokens_of_the_same_address_are_not(ask):
    guess = {"authorization": f"Bearer bic_{'0' * 12}_{'A' * 43}"}

    assert [ask("GET", "/api/v1/jobs", **guess).code for _ in range(3)] == [401, 401, 429]
    assert ask("GET", "/api/v1/jobs", authorization=f"Bearer {ask.token()}").code == 200


def test_who_guesses_tokens_at_the_login_is_stopped_and_a_good_one_is_taken(tmp_path):
    many, few = RequestRate(burst=100, per_second=1), RequestRate(burst=2, per_second=0.01)
    limits = LimitOptions(reads=many, writes=many, failures=few)
    with asked_of(tmp_path / "home", needs_login=True, limits=limits) as ask:
        guess = f"bic_{'0' * 12}_{'A' * 43}"
        guesses = [ask.page("/login", {"token": guess}) for _ in range(3)]
        by_header = ask("GET", "/api/v1/jobs", authorization=f"Bearer {guess}")
        elsewhere = ask.page("/login", {"token": guess}, client="192.0.2.8")
        good = ask.page("/login", {"token": ask.token()})

    assert [each.code for each in guesses] == [401, 401, 429]
    assert (b"BIC-2326" in guesses[2].data, "retry-after" in guesses[2].headers) == (True, True)
    assert (by_header.code, elsewhere.code, good.code) == (429, 401, 303)


def test_a_change_that_is_refused_is_in_the_audit_log_with_who_where_and_why(tmp_path):
    with asked_of(tmp_path / "home", needs_login=True) as ask:
        viewer, admin = ask.token(Role.VIEWER), ask.token(Role.ADMIN, name="root")
        ask("POST", "/api/v1/jobs/job/stop", b"{}", authorization=f"Bearer {viewer}")
        ask("POST", "/api/v1/jobs/none/stop", b"{}", authorization=f"Bearer {admin}")
        ask("POST", "/api/v1/jobs/job/stop", b"{}", client="192.0.2.7")
        ask.page("/login", {"token": "nonsense"}, client="192.0.2.8")
        words = {"authorization": f"Bearer {admin}"}

        items = ask("GET", "/api/v1/audit", **words).json["items"]
        page = ask.page("/audit", **words)

    told = [(e["actor"], e["address"], e["outcome"], e["facts"].get("code")) for e in items[2:]]
    assert told == [
        ("ada", "127.0.0.1", "refused", "BIC-2322"),
        ("root", "127.0.0.1", "refused", "BIC-1902"),
        ("nobody", "192.0.2.7", "refused", "BIC-2320"),
        ("nobody", "192.0.2.8", "refused", "401"),
    ]
    assert [e["action"] for e in items[:2]] == ["token create"] * 2
    assert (page.code, b"192.0.2.7" in page.data) == (200, True)
    assert viewer.encode() not in page.data


def test_a_refused_change_is_in_the_audit_log_before_its_answer_goes(tmp_path):
    with asked_of(tmp_path / "home") as ask:
        app, seen = ask.app, []

        async def look_first(scope, receive, send):
            async def look(message):
                if message["type"] == "http.response.start":
                    lines = ask.service.history.audit()
                    seen.append([each.facts["code"] for each in lines])
                await send(message)

            await app(scope, receive, look)

        ask.app = look_first
        at_the_door = ask("POST", "/api/v1/jobs/job/stop", b"{}", origin="http://evil.example")
        behind_it = ask("POST", "/api/v1/jobs/none/stop", b"{}")

    assert (at_the_door.code, behind_it.code) == (403, 404)
    assert seen == [["BIC-2408"], ["BIC-2408", "BIC-1902"]]


def test_a_change_is_refused_although_the_audit_log_cannot_be_written(tmp_path, caplog):
    broken = "CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'full'); END"
    with asked_of(tmp_path / "home") as ask:
        ask.service.history._control.write(lambda database: database.execute(broken)).result()
        at_the_door = ask("POST", "/api/v1/jobs/job/stop", b"{}", origin="http://evil.example")
        behind_it = ask("POST", "/api/v1/jobs/none/stop", b"{}")
        listed = ask("GET", "/api/v1/audit").json["items"]

    assert (at_the_door.code, behind_it.code, listed) == (403, 404, [])
    assert [each.message for each in caplog.records].count("audit_line_lost") == 2


def test_a_body_that_is_too_large_is_refused_however_it_comes(tmp_path):
    with asked_of(tmp_path / "home") as ask:
        piece = b" " * (1 << 19)
        told = ask("POST", "/api/v1/jobs", b"{}", content_length=str((1 << 20) + 1))
        untold = ask("POST", "/api/v1/jobs", [piece, piece, b" "], transfer_encoding="chunked")
        odd = [
            ask("POST", "/api/v1/jobs", b"{}", content_length=text).code
            for text in ("-1", "1e3", "\u00b2", "1, 1", "9" * 5_000)
        ]

    assert [each.code for each in (told, untold)] == [413, 413]
    assert odd == [413] * 5
