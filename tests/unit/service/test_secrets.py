"""Secrets of jobs in texts that the service shows: found, and forgotten when there are many."""

from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.options import JobOptions, JobRequest
from bicycle_runtime.service.users import redaction
from bicycle_runtime.service.users.redaction import JobSecrets, redacted


def test_a_text_is_searched_for_secrets_once_however_long_it_is():
    for text in ("a" * 1_000_000, "a://" * 250_000, "://" + "a" * 1_000_000):
        hidden = redacted({"plugin": f"{text} redis://ada:hunter2@host"})["plugin"]

        assert hidden == f"{text} redis://***@host"


def test_secrets_of_many_jobs_are_forgotten_and_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(redaction, "_JOBS_KEPT_MAX", 3)
    home = Home(tmp_path)
    home.prepare()
    secrets = JobSecrets(home)
    for number in range(8):
        params = {"password": f"canary-{number}"}
        request = JobRequest(options=JobOptions(plugin="sample", name="job"), params=params)
        home.folder(f"job-{number}").write_request(request)

    for number in (*range(8), 0):
        assert secrets.hide(f"job-{number}", f"with canary-{number}") == "with ***"
        assert len(secrets._kept) <= 3
