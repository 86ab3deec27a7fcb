"""Running a job with one code, and going on from what it sealed with another."""

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import KeyedProcessFunction


def keyed_job(function, *, kind="process_fn"):
    """Return a job of one function that is keyed by the first item of each record."""

    def build(env):
        pairs = env.add_source(script_source(tuple[str, int])).uid("pairs")
        keyed = pairs.key_by(lambda pair: pair[0])
        getattr(keyed, kind)(function).uid("state").collect("out")

    return build


class Run:
    """One run of a job, from what another sealed or from nothing. ``close`` it in the end."""

    def __init__(self, job, former=None, *, backend="memory", **settings):
        self.harness = Harness(job, engine=EngineOptions(state_backend=backend), **settings)
        self.harness.__enter__()
        self._pushed = 0
        if former is not None:
            snapshot, self._pushed = former
            try:
                # What the former run has read stands before what is pushed now.
                self.harness.push([None] * self._pushed)
                self.harness.restore(snapshot)
            except BaseException:
                self.harness.__exit__()
                raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.harness.__exit__()

    def put(self, *records):
        """Run one epoch over some records; return all that came out so far."""
        self.harness.push(records)
        self._pushed += len(records)
        self.harness.run_epoch()
        return self.harness.results("out")

    @property
    def sealed(self):
        """What another run can go on from."""
        return self.harness.snapshot(), self._pushed


def sealed_by(job, *epochs, former=None, backend="memory", **settings):
    """Run epochs, and return what another run can go on from."""
    with Run(job, former, backend=backend, **settings) as run:
        for records in epochs:
            run.put(*records)
        return run.sealed


class Folding(KeyedProcessFunction):
    """Keeps one value per key, ``fold(former value, number)``, and emits it.

    Derived classes have the descriptor ``state`` and the method ``fold``.
    """

    def process_element(self, pair, ctx):
        cell = ctx.get_value_state(self.state)
        cell.update(self.fold(cell.value(), pair[1]))
        return [(pair[0], cell.value())]
