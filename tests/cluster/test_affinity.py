"""State has a place: its tasks run on the host that has it, epoch after epoch."""

from __future__ import annotations

from tests.spark.jobsite import expected_counts, visible_counts


def test_tasks_with_state_stay_on_their_hosts_over_rescales_and_the_plugin_travels_to_them(site):
    """The hosts have no plugin: that there is a result at all shows that it was sent."""
    site.install_whereabouts()
    words = site.write_words(lines=4_000)
    life = site.start("--parallelism", "2", "--max-records-per-epoch", "40", "--json")
    for parallelism in (4, 2):
        site.let_epochs_pass(10)
        site.rescale(parallelism)
    assert life.wait() == 0, (life.stdout, life.stderr)

    assert life.answer["epoch"] >= 100
    assert visible_counts(site.output) == expected_counts(words)
    places = site.hosts_by_word()
    # Only on a busy machine one host is there so late that the job begins without it.
    changes = [event for event in life.log_events if event["event"] == "hosts_changed"]
    assert max(map(len, places.values())) <= 1 + len(changes)
    assert {hosts[-1] for hosts in places.values()} == {"127.0.0.2", "127.0.0.3"}
