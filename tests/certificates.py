"""Certificates made for tests, by openssl."""

import subprocess

CA = ["-addext", "basicConstraints=critical,CA:TRUE"]


def _request(folder, name, subject, *more):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "2", "-subj", f"/CN={subject}", "-keyout", str(folder / f"{name}.key"),
         "-out", str(folder / f"{name}.pem"), *more],
        check=True, capture_output=True,
    )  # fmt: skip


def make_certificates(folder):
    """Make ``service``, ``ca``, clients ``ada`` and ``eve`` by it, and ``stranger`` in a folder."""
    _request(folder, "service", "localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    _request(folder, "ca", "clients", *CA)
    _request(folder, "stranger", "ada")
    for name in ("ada", "eve"):
        signer = ["-CA", str(folder / "ca.pem"), "-CAkey", str(folder / "ca.key")]
        _request(folder, name, name, *signer, "-addext", "basicConstraints=critical,CA:FALSE")
    return folder
