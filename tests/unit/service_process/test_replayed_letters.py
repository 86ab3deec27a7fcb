"""Dead letters of a running job, replayed through the service: by request and by a form."""

import signal
from urllib.parse import quote

from tests.unit.jobs.control.letter_job import Letters
from tests.unit.service_process.served import Served
from tests.waiting import until


def test_letters_are_replayed_by_request_and_by_form(tmp_path):
    letters = Letters(tmp_path)
    served = Served(tmp_path / "home").start()
    path = "/api/v1/jobs/job/dead-letters"
    try:
        until(lambda: served.get("/api/v1/jobs")["items"], "the job")
        newest = served.get(path)["items"][0]["id"]
        vague = served.ask("POST", f"{path}/replay", {"letters": [newest], "operator": "even"})
        unknown = served.ask("POST", f"{path}/replay", {"letters": ["nowhere.jsonl:1"]})
        (letters.root / "strict").unlink()

        page = served.ask("GET", "/jobs/job/dead-letters")[2].decode()
        asks = f"/jobs/job/actions/replay_letters?letter={quote(newest)}"
        question = served.ask("GET", asks)[2].decode()
        sent = served.ask(
            "POST", "/jobs/job/actions/replay_letters", f"letters={quote(newest)}".encode(),
            content_type="application/x-www-form-urlencoded", origin=served.url,
        )  # fmt: skip
        until(lambda: served.get(path)["items"][0]["replayed_epoch"], "the first")
        again = served.post(f"{path}/replay", {"letters": [newest]})
        rest = served.post(f"{path}/replay", {}, Idempotency_Key="rest")
        same = served.post(f"{path}/replay", {}, Idempotency_Key="rest")
        after = served.ask("GET", "/jobs/job/dead-letters")[2].decode()
    finally:
        served.end(signal.SIGKILL)
        letters.job.end(letters.running)

    assert (vague[0], unknown[0]) == (422, 404)
    assert "Replay all" in page
    assert newest in question
    assert "No letter is replayed twice" in question
    assert (sent[0], sent[1]["location"]) == (303, "/jobs/job/dead-letters")
    assert (again["state"], again["error"]["code"]) == ("failed", "BIC-1960")
    assert (rest["state"], len(rest["result"]["letters"])) == ("done", 2)
    assert same == rest
    assert "Replay all" not in after
    assert letters.results() == [(0, 1), (1, 1), (1, 2), (2, 1), (3, 1)]
