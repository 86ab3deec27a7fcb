"""The word count over Kafka under load: who writes lines all the time, and who checks the counts.

For every word the counts must be 1, 2, 3 and so on in the one partition of its key: a count that is
missing, there twice or out of order shows at the message where it happens. Who waits for counts
that cannot come any more, since the writer or the job ended, is told so at once.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.kafka.sink_runs import messages_in
from tests.spark.jobsite import Life
from tests.waiting import PATIENCE_S

_WORDS = [f"w{number}" for number in range(60)]
_BATCH = 20
_QUERY_S = 5.0


class LineWriter(threading.Thread):
    """Writes random lines to a topic until it is stopped; knows how often it wrote each word.

    Args:
        settings: Of the client.
        topic: Where to.
        lines_per_s: How fast, about.
    """

    def __init__(self, settings: dict[str, str], topic: str, *, lines_per_s: int = 400) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({**settings, "enable.idempotence": True, "log_level": 2})
        self._topic = topic
        self._pause_s = _BATCH / lines_per_s
        self._source = random.Random(topic)
        self._is_done = threading.Event()
        self._errors: list[KafkaError] = []
        self._failure: Exception | None = None
        self.totals: Counter[str] = Counter()

    @property
    def unsent_count(self) -> int:
        """How many lines the broker does not have yet."""
        return len(self._producer)

    def run(self) -> None:
        try:
            while not self._is_done.wait(self._pause_s):
                self.write(_BATCH)
        except Exception as error:  # noqa: BLE001 - raised by ``check``, where somebody sees it.
            self._failure = error

    def check(self) -> None:
        """Fail when no more lines will come, or when some were refused."""
        if self._failure is not None:
            raise AssertionError("the writer of lines ended") from self._failure
        assert self._errors == []

    def write(self, count: int) -> None:
        """Write some lines now, into partitions by chance."""
        for _ in range(count):
            words = self._source.choices(_WORDS, k=3)
            self._producer.produce(self._topic, " ".join(words), on_delivery=self._note)
            self.totals.update(words)
        self._producer.poll(0)

    def fill(self, count: int) -> None:
        """Write so many lines of one word, as fast as the broker takes them."""
        while count:
            words = self._source.choices(_WORDS, k=min(count, 10_000))
            while len(self._producer) > 50_000:
                self._producer.poll(0.01)
            batch = [{"value": word} for word in words]
            assert self._producer.produce_batch(self._topic, batch) == len(batch)
            self.totals.update(words)
            count -= len(words)
        assert self._producer.flush(PATIENCE_S) == 0

    def stop(self) -> Counter[str]:
        """Write no more; return how often each word was written. All of it is in the topic."""
        self.abandon()
        assert self._producer.flush(PATIENCE_S) == 0
        self.check()
        return self.totals

    def abandon(self) -> None:
        """Write no more, whatever became of what was written."""
        self._is_done.set()
        if self.is_alive():
            self.join()

    def _note(self, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            self._errors.append(error)


class CountWatcher:
    """Reads the committed counts of a topic as they come, and fails at the first wrong one.

    Args:
        settings: Of the client.
        topic: Where the counts are.
        check: Fails when no more can come; called while some are waited for.
    """

    def __init__(self, settings: dict[str, str], topic: str, check: Callable[[], None]) -> None:
        self._settings = settings
        self._topic = topic
        self._check = check
        self._places: dict[str, int] = {}
        self.counts: Counter[str] = Counter()
        self._consumer = Consumer(
            {
                **settings,
                "group.id": f"watch-{topic}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
                "log_level": 2,
            }
        )
        partitions = self._consumer.list_topics(topic, timeout=30).topics[topic].partitions
        self._consumer.assign([TopicPartition(topic, number, 0) for number in partitions])

    @property
    def count(self) -> int:
        """How many counts were seen."""
        return self.counts.total()

    def look(self, wait_s: float = 0.1) -> None:
        """Check what has come, or what comes within this time."""
        for message in self._consumer.consume(5_000, timeout=wait_s):
            # Brokers may be away: the client tells, and goes on by itself.
            if message.error() is None:
                self._take(message.key().decode(), message.partition(), message.value())

    def wait_for_more(self, count: int = 1) -> None:
        """Wait until so many more counts are there."""
        self._wait(self.count + count)

    def wait_for(self, totals: Counter[str]) -> None:
        """Wait until all words are counted, and prove that nothing else is in the topic."""
        self._wait(totals.total())
        assert self.counts == totals
        assert len(messages_in(self._settings, self._topic)) == totals.total()

    def uncommitted_count(self) -> int:
        """Return how many messages are in the topic that no committed reader sees."""
        everything = messages_in(self._settings, self._topic, "read_uncommitted")
        return len(everything) - self.count

    def close(self) -> None:
        self._consumer.close()

    def _wait(self, count: int) -> None:
        """Wait for this many counts, as long as some come from time to time."""
        deadline = time.monotonic() + PATIENCE_S
        while (before := self.count) < count:
            self._check()
            assert time.monotonic() < deadline, f"{before} counts of {count}"
            self.look()
            if self.count > before:
                deadline = time.monotonic() + PATIENCE_S

    def _take(self, key: str, partition: int, value: bytes) -> None:
        found = json.loads(value)
        assert found == {"word": key, "count": self.counts[key] + 1}
        assert self._places.setdefault(key, partition) == partition
        self.counts[key] += 1


class Load:
    """The two topics of a word count with who writes lines and who watches the counts.

    Args:
        settings: Of clients of the broker.
        name: Begins the names of topics, group and transactions.
        lines_per_s: How fast lines come once ``start`` was called.
    """

    def __init__(self, settings: dict[str, str], name: str, *, lines_per_s: int = 400) -> None:
        self.raw_topic, self.counts_topic = f"{name}-raw", f"{name}-counts"
        self.params = {
            "source": "kafka",
            "sink": "kafka",
            "brokers": settings["bootstrap.servers"],
            "raw_topic": self.raw_topic,
            "counts_topic": self.counts_topic,
            "group_id": name,
            "transactional_id_prefix": name,
        }
        self._settings = settings
        self._lives: list[Life] = []
        self.lines = LineWriter(settings, self.raw_topic, lines_per_s=lines_per_s)
        self.counts = CountWatcher(settings, self.counts_topic, self._check)

    def start(self) -> None:
        """Let lines come from now on."""
        self.lines.start()

    def rely_on(self, life: Life) -> None:
        """Let those who wait for counts fail when this job has ended."""
        self._lives.append(life)

    def story(self) -> str:
        """Tell how far lines and counts came, for a test that fails."""
        return (
            f"{self.counts.count} counts seen of {self.lines.totals.total()}, "
            f"{self.lines.unsent_count} lines not sent; "
            f"{self.raw_topic} ends at {self._ends(self.raw_topic)}, "
            f"{self.counts_topic}, as far as it is committed, at {self._ends(self.counts_topic)}"
        )

    def finish(self) -> None:
        """Write no more, and prove that every word was counted exactly once and in order."""
        self.counts.wait_for(self.lines.stop())

    def close(self) -> None:
        self.lines.abandon()
        self.counts.close()

    def _check(self) -> None:
        self.lines.check()
        for life in self._lives:
            assert life.process.poll() is None, "the job ended"

    def _ends(self, topic: str) -> list[int] | str:
        """Return the end of each partition for readers of what is committed, or why not."""
        consumer = Consumer({**self._settings, "group.id": "ends", "log_level": 2})
        try:
            partitions = consumer.list_topics(topic, timeout=_QUERY_S).topics[topic].partitions
            places = [TopicPartition(topic, number) for number in partitions]
            return [consumer.get_watermark_offsets(place, timeout=_QUERY_S)[1] for place in places]
        except KafkaException as error:
            return str(error)
        finally:
            consumer.close()
