"""Certificates made for tests, by openssl."""

import subprocess

CA = ["-addext", "basicConstraints=critical,CA:TRUE"]


def _request(folder, name, subject, *more, is_csr=False):
    subprocess.run(
        ["openssl", "req", *([] if is_csr else ["-x509", "-days", "2"]),
         "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-subj", f"/CN={subject}", "-keyout", str(folder / f"{name}.key"),
         "-out", str(folder / f"{name}.pem"), *more],
        check=True, capture_output=True,
    )  # fmt: skip


def make_expired(folder):
    """Make ``expired`` by ``ca``, for the host of ``service``, out of date for years."""
    words = {"database": "index", "serial": "serial", "new_certs_dir": ""}
    paths = "".join(f"{word} = {folder / name}\n" for word, name in words.items())
    (folder / "ca.cnf").write_text(
        "[ca]\ndefault_ca = all\n[all]\ndefault_md = sha256\npolicy = any\n"
        f"copy_extensions = copy\n{paths}[any]\ncommonName = supplied\n"
    )
    (folder / "index").write_text("")
    (folder / "serial").write_text("01")
    _request(folder, "expired", "localhost", "-addext", "subjectAltName=IP:127.0.0.1", is_csr=True)
    subprocess.run(
        ["openssl", "ca", "-batch", "-notext", "-config", str(folder / "ca.cnf"),
         "-cert", str(folder / "ca.pem"), "-keyfile", str(folder / "ca.key"),
         "-in", str(folder / "expired.pem"), "-out", str(folder / "signed.pem"),
         "-startdate", "20200101000000Z", "-enddate", "20200201000000Z"],
        check=True, capture_output=True,
    )  # fmt: skip
    (folder / "signed.pem").rename(folder / "expired.pem")


def make_certificates(folder):
    """Make certificates in a folder.

    ``service``, ``elsewhere`` of another host, ``ca``, by it ``expired`` and the clients ``ada``
    and ``eve``, and ``stranger``.
    """
    _request(folder, "service", "localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    _request(folder, "elsewhere", "other", "-addext", "subjectAltName=DNS:other.example")
    _request(folder, "ca", "clients", *CA)
    make_expired(folder)
    _request(folder, "stranger", "ada")
    for name in ("ada", "eve"):
        signer = ["-CA", str(folder / "ca.pem"), "-CAkey", str(folder / "ca.key")]
        _request(folder, name, name, *signer, "-addext", "basicConstraints=critical,CA:FALSE")
    return folder
