"""Making a file of streams: it appears with its header, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from bicycle_streams.file.errors import FILE_EXISTS, FILE_NAME_TOO_LONG, FILE_UNREADABLE
from bicycle_streams.file.format import NAME_SIZE_MAX, FileHeader


def create_file(path: Path, header: FileHeader, *, must_be_new: bool) -> None:
    """Make a file with a header and no message; one that exists stays as it is.

    Raises:
        StreamConnectError: it cannot be made; or it exists and must be new.
    """
    name_size = len(header.file_name.encode())
    if name_size > NAME_SIZE_MAX:
        raise FILE_NAME_TOO_LONG(path=str(path), size_bytes=name_size)
    draft = path.with_name(f".{path.name[:80]}.{os.getpid()}.new")
    try:
        draft.write_bytes(header.encode())
        os.link(draft, path)  # Fails where the file exists, unlike a rename.
    except FileExistsError:
        if must_be_new:
            raise FILE_EXISTS(path=str(path)) from None
    except OSError as error:
        reason = error.strerror if path.parent.exists() else f"folder {path.parent} does not exist"
        raise FILE_UNREADABLE(path=str(path), reason=reason) from None
    finally:
        draft.unlink(missing_ok=True)
