"""What a Parquet sink has written, and what is written there."""

from pyarrow import parquet


def files(out):
    return sorted(path.relative_to(out).as_posix() for path in out.glob("**/part-*.parquet"))


def rows(out):
    return [
        row for name in files(out) for row in parquet.ParquetFile(out / name).read().to_pylist()
    ]


def events(numbers):
    return [{"user": f"user {number % 5}", "n": number} for number in numbers]
