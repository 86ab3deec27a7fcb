"""``bicycle stream decode``, ``verify`` and ``repair``: stream files themselves."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import get_args

import click

from bicycle_sdk.quantities import amount
from bicycle_streams.cli.commands import command
from bicycle_streams.cli.exit_codes import FAILED
from bicycle_streams.cli.parameters import answers
from bicycle_streams.cli.rendering import answer_json, show_table
from bicycle_streams.file.decoding import decode
from bicycle_streams.file.repairing import Report, repair, verify
from bicycle_streams.texts import TextFormat

_file = click.argument("file", type=click.Path(path_type=Path))


@command(
    "decode",
    "bicycle stream decode --file events.ss",
    "bicycle stream decode --file events.ss --format ndjson --header-only",
)
@click.option(
    "--file", type=click.Path(path_type=Path), required=True, metavar="FILE", help="The file."
)
@click.option(
    "--format", "form", type=click.Choice(get_args(TextFormat)), default="log", show_default=True,
    help="Output format: [time | stream | sequence | shard] payload, or one JSON object per line.",
)  # fmt: skip
@click.option("--header-only", is_flag=True, help="Omit payloads.")
@answers
def decode_command(*, file: Path, form: TextFormat, header_only: bool, as_json: bool) -> None:
    """Print the content of a .ss file, with its header and beacons as comments.

    Binary payloads are shown as <BINARY BLOB>, or as base64 with --format ndjson.
    """
    lines = decode(file, form, header_only=header_only)
    if as_json:
        answer_json({"lines": list(lines)})
        return
    for line in lines:
        sys.stdout.write(line + "\n")


@command("verify", "bicycle stream verify events.ss")
@_file
@answers
@click.pass_context
def verify_command(context: click.Context, *, file: Path, as_json: bool) -> None:
    """Check a .ss file for damage; the exit code is 1 if damage was found.

    The head of a message has no checksum. Therefore decreasing sequence numbers or times within
    a shard, and messages that contradict a beacon (a summary within the file), also count as
    damage. A jump of the sequence number is shown as a gap: a message may be missing, as after
    a repair.
    """
    report = verify(file)
    _tell(report, None, as_json=as_json)
    if not report.is_intact:
        context.exit(FAILED)


@command("repair", "bicycle stream repair events.ss --output clean.ss")
@_file
@click.option(
    "--output", type=click.Path(path_type=Path), required=True, metavar="NEW",
    help="Path of the repaired file; must not exist.",
)  # fmt: skip
@answers
def repair_command(*, file: Path, output: Path, as_json: bool) -> None:
    """Copy the intact messages of a damaged .ss file, and report the losses."""
    _tell(repair(file, output), output, as_json=as_json)


def _tell(report: Report, output: Path | None, *, as_json: bool) -> None:
    if as_json:
        found = {
            "path": str(report.path),
            "is_intact": report.is_intact,
            "message_count": report.message_count,
            "by_stream": dict(report.by_stream),
            "has_ended": report.has_ended,
            "broken": [asdict(each) for each in report.broken],
            "gaps": [asdict(each) for each in report.gaps],
        }
        answer_json(found if output is None else found | {"output": str(output)})
        return
    verdict = "intact" if report.is_intact else f"damaged places: {len(report.broken)}"
    gaps = f", gaps in sequences: {len(report.gaps)}" if report.gaps else ""
    where = "" if output is None else f", written to {output}"
    click.echo(f"{report.path}: {amount(report.message_count, 'message')}, {verdict}{gaps}{where}")
    if report.broken:
        rows = [
            (str(b.offset), str(b.size), b.stream or "", _text(b.sequence), b.problem)
            for b in report.broken
        ]
        show_table(("byte", "size", "stream", "sequence", "problem"), rows)
    if report.gaps:
        gap_rows = [(g.stream, str(g.shard_id), str(g.after), str(g.sequence)) for g in report.gaps]
        show_table(("stream", "shard", "sequence", "followed by"), gap_rows)


def _text(number: int | None) -> str:
    return "" if number is None else str(number)
