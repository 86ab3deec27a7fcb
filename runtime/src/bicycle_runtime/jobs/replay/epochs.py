"""Another run of a retained epoch of a job, to examine it or its failure.

This side finds the checkpoint, the plugin and the parameters, and asks a child process to do it:
user code runs there, with the hash seed that workers have, and whatever it does to its process is
done to the child. The checkpoint is only read, no lock is taken, nothing is published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from bicycle_runtime.base.children import Child, NoAnswerError
from bicycle_runtime.base.environment import environment_for_python
from bicycle_runtime.base.errors import error_from_json
from bicycle_runtime.extraction.extract import extract
from bicycle_runtime.jobs.checkpoints.lookup import find_checkpoint
from bicycle_runtime.jobs.errors import REPLAY_ENDED, REPLAY_PLUGIN_UNKNOWN
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.plugins.environments import resolve_plugin
from bicycle_runtime.jobs.plugins.graph_changes import with_run_options
from bicycle_runtime.recovery.savepoints import job_facts

NEXT: Literal["next"] = "next"
_MODULE = "bicycle_runtime.jobs.replay.child"
# Not the folder for state: it belongs to the running job.
_STATE_SETTINGS = {"state_backend", "state_cache_entries"}
_LAST_WORDS_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """The epoch to replay, and the options.

    ``job`` and ``checkpoint_dir`` are its location; ``epoch`` is a sealed one, or one that failed,
    which ``"next"`` means, too. ``plugin``, ``plugin_env`` and ``params`` replace the values of the
    job's start. ``key`` is a key as text; ``operator`` is the operator to show, and with
    ``is_debugged`` the operator in which the debugger stops. ``shown_count`` bounds the output for
    each sink and state.
    """

    job: str | None = None
    checkpoint_dir: str | None = None
    epoch: int | Literal["next"] = NEXT
    plugin: str | None = None
    plugin_env: str | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None
    operator: str | None = None
    is_debugged: bool = False
    shown_count: int = 10


def replay(request: ReplayRequest, home: Home, *, is_quiet: bool = False) -> dict[str, Any]:
    """Replay an epoch in a child process and return its report as plain data.

    Standard input, and standard output unless ``is_quiet``, are the child's meanwhile: a debugger
    needs them, and functions may print.

    Args:
        request: The epoch to replay.
        home: Knows the jobs of this machine.
        is_quiet: Send printed output to standard error.

    Raises:
        CHECKPOINT_MISSING: there is no such checkpoint.
        REPLAY_PLUGIN_UNKNOWN: the plugin that ran the job is unknown.
        REPLAY_ENDED: the child ended without a report.
        BicycleError: the epoch cannot be replayed, see ``child``.
    """
    storage = find_checkpoint(home, job=request.job, checkpoint_dir=request.checkpoint_dir)
    noted = job_facts(storage)
    asked = _find_request(home, request)
    plugin = request.plugin or (asked.options.plugin if asked else noted.get("plugin"))
    if plugin is None:
        raise REPLAY_PLUGIN_UNKNOWN(url=storage.url)
    known = asked.params if asked is not None and asked.options.plugin == plugin else {}
    plugin_env = request.plugin_env or (asked.options.plugin_env if asked else None)
    # The child finds modules where this process does.
    bundle = extract(resolve_plugin(plugin, plugin_env, home), {**known, **request.params})
    if asked is not None:
        bundle = with_run_options(bundle, asked.options)
    settings = asked.engine if asked is not None else {}
    engine = {name: settings[name] for name in _STATE_SETTINGS & settings.keys()}
    words = {
        **asdict(request),
        "url": storage.url,
        "job_id": noted.get("job") or storage.url.rstrip("/").rpartition("/")[2],
        "engine": engine,
    }
    # Workers have this hash seed: sets of texts are walked in one order.
    variables = environment_for_python({"PYTHONHASHSEED": "0"})
    output: Literal["quiet", "shown"] = "quiet" if is_quiet else "shown"
    with Child(_MODULE, environment=variables, output=output) as child:
        try:
            answer, _ = child.answer_to(words, [bundle.to_bytes()], timeout_s=None)
        except NoAnswerError:
            how = child.end(within_s=_LAST_WORDS_S)
            raise REPLAY_ENDED(epoch=str(request.epoch), how=how) from None
    if "refused" in answer:
        raise error_from_json(answer["refused"])
    return answer


def _find_request(home: Home, request: ReplayRequest) -> JobRequest | None:
    """Return how the job was started on this machine, when it was named."""
    if request.job is None:
        return None
    folder = home.folder(request.job)
    return folder.read_request() if folder.request_path.exists() else None
