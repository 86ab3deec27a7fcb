import json

import pytest

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.engine.planning.setup import prepare_job
from bicycle_runtime.extraction.bundle import JobBundle
from bicycle_runtime.jobs.checkpoints.job_file import note_run, refuse_newer
from bicycle_runtime.jobs.errors import (
    CHECKPOINT_VERSION_UNKNOWN,
    NO_RETENTION,
    NOTHING_TO_FOLLOW,
)
from bicycle_runtime.jobs.plugins.graph_changes import (
    require_parallelism,
    with_data_loss_policy,
    with_follow,
)
from bicycle_runtime.jobs.plugins.graph_view import graph_view
from bicycle_sdk import CoMapFunction, KafkaSourceBuilder
from bicycle_sdk.chaining import optimize
from bicycle_sdk.errors import OptionError
from tests.raising import raises
from tests.unit.jobs.job_samples import bundle_of


def two_sources(env):
    lines = env.read_text("in.txt").uid("lines")
    lines.union(env.from_collection(["a"])).key_by(str).count().uid("counts").print()


def collected(env):
    env.from_collection([1]).print()


def properties(bundle, vertex):
    return bundle.graph.vertex(vertex).details["connector"]["properties"]


def test_following_changes_file_sources_and_the_digest_only():
    bundle = bundle_of(two_sources)
    followed = with_follow(bundle)

    assert properties(followed, "lines") == {**properties(bundle, "lines"), "follow": True}
    assert followed.digest != bundle.digest
    assert JobBundle.from_bytes(followed.to_bytes()) == followed
    changed = [
        new.id
        for old, new in zip(bundle.graph.vertices, followed.graph.vertices, strict=True)
        if old != new
    ]
    assert changed == ["lines"]


def test_a_job_without_files_cannot_be_followed():
    with raises(NOTHING_TO_FOLLOW) as caught:
        with_follow(bundle_of(collected))
    assert caught.value.facts["sources"] == "collection"


def test_a_policy_for_lost_messages_replaces_that_of_the_plugin_in_every_topic():
    def build(env):
        for number in range(2):
            source = KafkaSourceBuilder[str]("b:1", f"t{number}").on_data_loss("fail")
            env.add_source(source).uid(f"in{number}").print()

    changed = with_data_loss_policy(bundle_of(build), "latest")

    assert [properties(changed, f"in{n}")["on_data_loss"] for n in range(2)] == ["latest"] * 2


def test_a_policy_for_lost_messages_is_refused_where_nothing_can_be_lost():
    with raises(NO_RETENTION) as caught:
        with_data_loss_policy(bundle_of(collected), "latest")
    assert caught.value.facts["sources"] == "collection"


def test_a_parallelism_over_the_smallest_maximum_is_refused():
    def narrow(env):
        env.set_max_parallelism(16)
        env.from_collection([1]).map(str).set_max_parallelism(8).print()

    graph = bundle_of(narrow).graph
    require_parallelism(graph, None)
    require_parallelism(graph, 8)
    with pytest.raises(OptionError) as caught:
        require_parallelism(graph, 9)
    assert caught.value.facts["found"] == 9


def test_the_view_has_chains_by_stage_and_exchanges_between_them():
    view = graph_view(bundle_of(two_sources).graph)

    assert view.operator_count == 6
    assert view.stages == (1,) * len(view.stages)
    ids = [op.id for chain in view.chains for op in chain.operators]
    assert sorted(ids) == sorted(v.id for v in bundle_of(two_sources).graph.vertices)
    shuffled = [e for e in view.exchanges if e.exchange == "shuffle"]
    assert [(e.partitioning, e.link) for e in shuffled] == [("Hash", "parcel")]
    assert json.loads(json.dumps(view.to_json()))["job"] == "sample"


def test_the_view_takes_another_parallelism_where_the_source_can():
    view = graph_view(bundle_of(two_sources).graph, parallelism=3)

    assert max(view.stages) == 3
    assert {op.parallelism for chain in view.chains for op in chain.operators} <= {1, 3}


def test_every_chain_and_exchange_is_drawn():
    view = graph_view(bundle_of(two_sources).graph)
    text, drawing = view.to_text(), view.to_mermaid()

    for chain in view.chains:
        assert f"[{chain.index}]" in text
        assert f"c{chain.index}[" in drawing
    for exchange in view.exchanges:
        assert f"--> [{exchange.target_chain}]" in text
        assert f"| c{exchange.target_chain}" in drawing
    assert drawing.startswith("flowchart LR\n")


class Both(CoMapFunction[str, int, str]):
    def map1(self, value):
        return value

    def map2(self, value):
        return str(value)


def connected(env):
    words = env.from_collection(["a", "b"]).uid("words")
    words.connect(env.from_collection([1])).map(Both()).uid("both").print()
    words.key_by(str).count().uid("by-word").set_max_parallelism(64).print()
    words.count().uid("all").print()


def test_counts_and_connected_streams_have_the_words_of_the_shared_graph_language():
    view = graph_view(bundle_of(connected).graph)
    words = {op.uid: op.words for chain in view.chains for op in chain.operators if op.uid}

    assert words["both"] == ("Connect", "CoProcess")
    assert words["by-word"] == words["all"] == ("Count",)
    assert words["words"] == ("Source",)
    told = view.to_json()["chains"]
    assert ["Connect", "CoProcess"] in [list(op["words"]) for c in told for op in c["operators"]]
    assert ": Connect, CoProcess" in view.to_text()
    assert ": Count" in view.to_text()


def test_the_view_has_every_figure_of_the_optimizer():
    graph = bundle_of(connected).graph
    optimized, told = optimize(graph), graph_view(graph).to_json()

    stats = optimized.stats
    assert told["chaining"] == {
        "operators_before": len(graph.vertices), "chains_after": len(optimized.chains),
        "tasks_before": stats.tasks_before, "tasks_after": stats.tasks_after,
        "slot_sharing_groups": 1, "min_slots_needed": 1,
        "min_slots_without_sharing": stats.tasks_after,
        "task_reduction_percent": round(100 - 100 * stats.tasks_after / stats.tasks_before, 1),
    }  # fmt: skip
    fields = ("id", "max_parallelism", "is_source", "is_sink", "task_count", "slot_sharing_group")
    assert sorted(tuple(chain[name] for name in fields) for chain in told["chains"]) == sorted(
        tuple(getattr(chain, name) for name in fields) for chain in optimized.chains
    )
    ids = {chain["index"]: chain["id"] for chain in told["chains"]}
    assert sorted(
        (ids[e["source_chain"]], ids[e["target_chain"]], e["edge_count"])
        for e in told["chain_edges"]
    ) == sorted((e.source_chain_id, e.target_chain_id, len(e.edges)) for e in optimized.edges)


@pytest.fixture
def storage(tmp_path):
    return LocalStorage(str(tmp_path), is_synced=False)


def job_file(storage):
    return json.loads(storage.read("job.json"))


def note(storage, build=two_sources, now_ms=5):
    setup = prepare_job(bundle_of(build), job_id="j", storage=storage)
    note_run(setup, now_ms=now_ms)
    return setup


def test_the_job_file_names_plugin_digest_and_operators_with_state(storage):
    setup = note(storage)

    data = job_file(storage)
    assert data["bundle_digest"] == setup.bundle.digest
    assert (data["plugin"], data["plugin_version"]) == ("sample", "1.2.3")
    assert data["key_groups"] == {"counts": 128}
    assert data["operators"] == {"counts": "Reduce"}


def test_another_bundle_is_logged_and_allowed(storage, caplog):
    caplog.set_level("INFO", logger="bicycle_runtime")
    note(storage, now_ms=5)
    assert caplog.records == []

    note(storage, collected, now_ms=6)

    assert [record.getMessage() for record in caplog.records] == ["job_changed"]
    assert (job_file(storage)["created_ms"], job_file(storage)["started_ms"]) == (5, 6)


def test_a_damaged_job_file_is_told_and_written_anew(storage, caplog):
    storage.write("job.json", b"{")
    note(storage)

    assert [record.getMessage() for record in caplog.records] == ["job_file_damaged"]
    assert job_file(storage)["job"] == "j"


def test_a_checkpoint_of_a_newer_version_is_refused_unchanged(storage):
    newer = b'{"format_version": 2}'
    storage.write("job.json", newer)

    with raises(CHECKPOINT_VERSION_UNKNOWN):
        refuse_newer(storage)
    assert storage.read("job.json") == newer
