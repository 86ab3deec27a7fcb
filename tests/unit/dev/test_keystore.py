import ssl

from bicycle_runtime.dev.broker_options import make_keystore
from bicycle_runtime.dev.errors import KEYSTORE_NOT_MADE
from tests.raising import raises


def test_a_keystore_comes_with_the_certificate_to_trust(tmp_path):
    store = make_keystore(tmp_path / "tls")

    context = ssl.create_default_context(cafile=str(store.ca_path))
    [certificate] = context.get_ca_certs()
    assert certificate["subject"] == ((("commonName", "localhost"),),)
    assert store.path.stat().st_size > 0
    assert store.password not in repr(store)


def test_a_keystore_that_is_there_is_used_again(tmp_path):
    first = make_keystore(tmp_path)
    data = first.path.read_bytes()

    assert make_keystore(tmp_path) == first
    assert first.path.read_bytes() == data


def test_what_keytool_says_is_told(tmp_path, fake_java):
    fake_java()
    keytool = tmp_path / "java-home" / "bin" / "keytool"
    keytool.write_text("#!/bin/sh\necho 'keytool error: no entropy'; exit 1\n")
    keytool.chmod(0o755)

    with raises(KEYSTORE_NOT_MADE) as error:
        make_keystore(tmp_path / "tls")

    assert "no entropy" in error.value.facts["reason"]


def test_a_java_without_keytool_is_told(tmp_path, fake_java, monkeypatch):
    fake_java()
    monkeypatch.setenv("PATH", "")

    with raises(KEYSTORE_NOT_MADE) as error:
        make_keystore(tmp_path / "tls")

    assert "not found" in error.value.facts["reason"]
