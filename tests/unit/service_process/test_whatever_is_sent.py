"""Schemathesis against the service: requests made of its OpenAPI document, by all roles.

Whatever is sent, valid or not, no answer is a 5xx, and each has a code, a type and a shape that the
document tells. Who is not let in is told so on every route but those that are open.
"""

import itertools
import json
import signal

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from bicycle_runtime.api.openapi import document
from bicycle_runtime.api.routes import ROUTES
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.status import JobState, OperatorStatus
from bicycle_sdk.clock import SystemClock
from bicycle_streams.access.roles import Role
from bicycle_streams.access.tokens import tokens_of
from tests.unit.jobs.job_samples import put_job
from tests.unit.service_process.served import Served
from tests.waiting import PATIENCE_S

CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance,
    response_schema_conformance,
]  # fmt: skip
STREAMS = ("/events", "/jobs/{job_id}/events")  # They do not end; other tests read them.
SCHEMA = schemathesis.openapi.from_dict(json.loads(json.dumps(document())))
OPERATIONS = [
    operation
    for operation in (found.ok() for found in SCHEMA.get_all_operations())
    if not operation.path.endswith("/events")
]
REFUSED = (400, 401, 403, 404, 405, 413, 415, 429)
TOKEN_REQUESTS_MAX = 25  # So many changes a token may ask for at once.


class Askers:
    """Tokens of a role; each is used for so few requests that no limit is met."""

    def __init__(self, tokens):
        self._tokens = tokens
        self._used = dict.fromkeys(Role, 0)
        self._now = {}

    def headers(self, role):
        if role is Role.NOBODY:
            return {}
        if self._used[role] % TOKEN_REQUESTS_MAX == 0:
            lifetime_ms = 3_600_000
            _, token = self._tokens.create("ada", role=role, lifetime_ms=lifetime_ms, by="test")
            self._now[role] = {"Authorization": f"Bearer {token}"}
        self._used[role] += 1
        return self._now[role]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    home = Home(tmp_path_factory.mktemp("sent") / "home")
    home.prepare()
    operators = {"a": OperatorStatus(records_in=1)}
    place = str(home.path / "checkpoints/job")
    put_job(home, "job", state=JobState.FINISHED, ended_ms=1, operators=operators, checkpoint=place)
    served = Served(home.path, needs_login=True).start()
    with tokens_of(home.path, SystemClock()) as tokens:
        served.askers = Askers(tokens)
        yield served
    served.end(signal.SIGKILL)


def check(service, operation, role, mode, *, count, number):
    """Send so many requests of an operation, and hold each answer against the document."""

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case):
        job = (case.path_parameters or {}).get("job_id")
        if isinstance(job, str) and len(job) % 2:  # Of the others there is none.
            case.path_parameters["job_id"] = "job"
        answer = case.call(
            base_url=service.url, headers=service.askers.headers(role), timeout=PATIENCE_S
        )
        case.validate_response(answer, checks=CHECKS)
        if role is Role.NOBODY and operation.path != "/health":
            assert answer.status_code in REFUSED

    try:
        send()
    except Unsatisfiable:  # Nothing can be wrong about a request that says nothing but its path.
        assert mode is GenerationMode.NEGATIVE
        check(service, operation, role, GenerationMode.POSITIVE, count=count, number=number)


def modes():
    """Return each operation with a role and a kind of data; all of them once in turn."""
    kinds = itertools.cycle(itertools.product(Role, GenerationMode))
    for operation in OPERATIONS:
        role, mode = next(kinds)
        yield pytest.param(operation, role, mode, id=f"{operation.label} {role.name} {mode.name}")


@pytest.mark.parametrize(("operation", "role", "mode"), list(modes()))
def test_an_answer_is_as_documented(service, operation, role, mode):
    check(service, operation, role, mode, count=3, number=22)


@pytest.mark.extended
@pytest.mark.parametrize("mode", GenerationMode, ids=lambda mode: mode.name)
@pytest.mark.parametrize("role", Role, ids=lambda role: role.name)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_many_answers_are_as_documented(service, operation, role, mode):
    check(service, operation, role, mode, count=15, number=int(role))


def test_all_routes_but_streams_are_asked():
    asked = {operation.label.split()[1] for operation in OPERATIONS}

    assert len(asked) >= len({route.path for route in ROUTES if route.path not in STREAMS})
