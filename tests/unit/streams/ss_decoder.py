"""A decoder of ``.ss`` files of its own: plain, slow, and written from the description alone.

It shares no code with the backend, so that both would have to be wrong in the same way.
"""

from dataclasses import dataclass, field


def crc16(data, crc=0xFFFF):
    """Return the CRC-16/CDMA2000 of bytes, bit by bit."""
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = ((crc << 1) ^ 0xC867) & 0xFFFF if crc & 0x8000 else crc << 1
    return crc


@dataclass
class Decoded:
    """Everything in a file: messages as (key, shard, sequence, ms, payload), beacons by offset.

    ``ends`` tells for each message the offset behind its last byte.
    """

    name: str
    created_ms: int
    interval: int
    messages: list = field(default_factory=list)
    ends: list = field(default_factory=list)
    beacons: dict = field(default_factory=dict)
    has_ended: bool = False


def decode(data):
    """Return what a whole file holds; AssertionError at the first byte that is wrong."""
    assert data[:3] == b"Ss\x01"
    size = data[3]
    name = data[4 : 4 + size].decode()
    created_ms = number(data[4 + size : 12 + size])
    interval = number(data[12 + size : 16 + size])
    assert data[16 + size : 127] == bytes(111 - size)
    assert data[127] == 0x0D
    found = Decoded(name, created_ms, interval)
    stream, places, cuts = without_beacons(data, found)
    at, running, seen = 0, {}, {}
    while at < len(stream):
        assert not found.has_ended
        start = at
        key, shard, sequence, ms, at = header(stream, at)
        length = number(stream[at : at + 4])
        payload = stream[at + 4 : at + 4 + length]
        at += 4 + length
        assert len(payload) == length
        assert number(stream[at : at + 2]) == crc16(payload)
        assert stream[at + 2] == 0x0D
        if key == "SEA_STREAMER_INTERNAL":
            assert payload == b"EOS"
            found.has_ended = True
        else:
            found.messages.append((key, shard, sequence, ms, payload))
            found.ends.append(places[at + 2] + 1)
            before = running.get((key, shard), 0xFFFF)
            running[key, shard] = crc16(stream[at : at + 2], before)
            last = seen.get((key, shard), (0, 0))
            seen[key, shard] = (max(last[0], sequence), max(last[1], ms))
        at += 3
        check_beacons(found, cuts, start, at, seen, running)
    return found


def without_beacons(data, found):
    """Return the bytes of messages, where each stands, and before which each beacon does."""
    stream, places, cuts = bytearray(), [], []
    at = 128
    while at < len(data):
        if at % found.interval == 0:
            cuts.append((at, len(stream)))
            found.beacons[at], at = beacon(data, at)
        else:
            step = min(found.interval - at % found.interval, len(data) - at)
            stream += data[at : at + step]
            places += range(at, at + step)
            at += step
    return bytes(stream), places, cuts


def beacon(data, at):
    """Return (remaining, markers) of a beacon, and where it ends."""
    assert data[at] == 0x0D
    remaining, count = number(data[at + 1 : at + 5]), data[at + 5]
    at += 6
    markers = {}
    for _ in range(count):
        key, shard, sequence, ms, at = header(data, at)
        markers[key, shard] = (sequence, ms, number(data[at : at + 2]))
        at += 2
    assert data[at] == 0x0D
    return (remaining, markers), at + 1


def check_beacons(found, cuts, start, end, seen, running):
    """Compare the beacons that stand in or right behind a message with what was there by then."""
    for offset, at in cuts:
        if start < at <= end:
            remaining, markers = found.beacons[offset]
            assert remaining == end - at
            for stream, marker in markers.items():
                assert marker == (*seen[stream], running[stream])


def header(data, at):
    size = data[at]
    key = data[at + 1 : at + 1 + size].decode()
    at += 1 + size
    return key, *(number(data[at + 8 * i : at + 8 * i + 8]) for i in range(3)), at + 24


def number(data):
    return int.from_bytes(data, "big")
