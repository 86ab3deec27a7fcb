"""The parts of a file sink that are visible."""


def parts(folder):
    """Return part texts in order of their names, and check that nothing else is visible."""
    paths = sorted(path for path in folder.iterdir() if not path.name.startswith(".owner-"))
    assert all(path.name.startswith("part-") for path in paths)
    return [path.read_text() for path in paths]
