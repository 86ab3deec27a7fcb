"""What tests of event time share: windows by hand over timers, and a look at the times of records.

It is a module of its own so that workers on Spark find it by name, as they find the tests.
"""

from bicycle_sdk import KeyedProcessFunction, ProcessFunction

SIZE = 10_000


class Tumbling(KeyedProcessFunction[str, tuple[str, int], tuple[str, int, int]]):
    """Counts per key and window of 10 s, by hand: one timer for each last ms."""

    def process_element(self, value, ctx):
        end = ctx.timestamp // SIZE * SIZE + SIZE
        if end - 1 <= ctx.current_watermark():
            ctx.side_output("late", value)
            return []
        ctx.save_state(str(end), ctx.get_state(str(end), 0) + 1)
        ctx.timer_service.register_event_time_timer(end - 1)
        return []

    def on_timer(self, timestamp_ms, ctx):
        end = timestamp_ms + 1
        count = ctx.get_state(str(end))
        ctx.delete_state(str(end))
        return [(ctx.current_key(), end, count)]


class Stamps(ProcessFunction[object, tuple[object, int | None]]):
    """Each record with its event time."""

    def process_element(self, value, ctx):
        return [(value, ctx.timestamp)]


def first(value):
    return value[0]


def second(value):
    return value[1]
