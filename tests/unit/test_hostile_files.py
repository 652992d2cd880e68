"""Files that a person names and that are not what they seem: pipes, devices, endless or deep."""

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.host.settings import _kubeconfig
from nodepool.cli.commands.patch import _content
from nodepool.cli.errors import CliError
from nodepool.cli.formats import parse_format
from nodepool.client.backup import CONTENT, MANIFEST, check_backup
from nodepool.client.errors import ClientError
from nodepool.client.manifests import FILES_MAX, ManifestError, read_manifests
from nodepool.host.settings import SettingsError
from nodepool.nats.wire.errors import AccessError
from nodepool.nats.wire.files import content_of

ERRORS = (ManifestError, ClientError, CliError, AccessError, SettingsError, click.UsageError)
READERS: Mapping[str, Callable[[Path], object]] = {
    "manifest": lambda path: read_manifests([str(path)]),
    "patch": lambda path: _content(str(path)),
    "template": lambda path: parse_format(f"jsonpath-file={path}"),
    "columns": lambda path: parse_format(f"custom-columns-file={path}"),
    "password": lambda path: content_of("password_file", str(path)),
    "kubeconfig": lambda path: _kubeconfig(str(path)),
    "backup": lambda path: check_backup(path.parent),
}
DESCRIPTION = {
    "made": "2026-01-01T00:00:00+00:00",
    "last": 1,
    "messages": 1,
    "bytes": 0,
    "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "info": {"config": {"name": "NODEPOOL"}, "state": {"bytes": 10, "last_seq": 1}},
    "format": 1,
}


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link_to_zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link_to_the_terminal(path: Path) -> None:
    path.symlink_to("/dev/tty")


def listening_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


def loop(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize(
    "make", [pipe, link_to_zeros, link_to_the_terminal, listening_socket, loop]
)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_file_is_refused_at_once_in_one_line(
    make: Callable[[Path], None], reader: str, tmp_path: Path
) -> None:
    path = tmp_path / MANIFEST
    make(path)

    with pytest.raises(ERRORS) as caught:
        READERS[reader](path)

    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("make", [pipe, link_to_zeros])
def test_a_backup_whose_content_is_no_file_is_refused(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    (tmp_path / MANIFEST).write_text(json.dumps(DESCRIPTION))
    make(tmp_path / CONTENT)

    with pytest.raises(ClientError, match=r"^cannot read .*log\.snapshot: Is a "):
        check_backup(tmp_path)


def test_a_backup_that_is_whole_is_believed(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text(json.dumps(DESCRIPTION))
    (tmp_path / CONTENT).touch()

    assert check_backup(tmp_path).last == 1


def changed(path: tuple[str, ...], value: object) -> str:
    document = json.loads(json.dumps(DESCRIPTION))
    inner = document
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return json.dumps(document)


DEEP = "[" * 100_000 + "]" * 100_000
NAMES = [*((name,) for name in DESCRIPTION), ("info", "state"), ("info", "config")]
NAMES += [("info", "state", "bytes"), ("info", "state", "last_seq")]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        DEEP,
        '{"format": 1, "info": ' + DEEP + "}",
        json.dumps(DESCRIPTION) + " " * (1 << 20),
        changed(("made",), "\x1b[31m"),
        changed(("last",), "1"),
        changed(("snapshots",), 1),
        changed(("snapshots",), {"bytes": 1, "sha256": "", "info": []}),
        changed(("snapshots",), {"info": DESCRIPTION["info"]}),
        changed(("info", "state", "bytes"), 10**400),
        changed(("info", "state", "last_seq"), -1),
        changed(("info", "config"), float("nan")),
    ],
)
def test_a_damaged_description_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text(text)
    (tmp_path / CONTENT).touch()

    with pytest.raises(ClientError, match=r"manifest\.json is damaged; restore another backup$"):
        check_backup(tmp_path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@given(path=st.sampled_from(NAMES), value=JSON)
def test_no_value_in_a_description_ends_in_a_traceback(
    path: tuple[str, ...], value: object, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("backup")
    (folder / MANIFEST).write_text(changed(path, value))
    (folder / CONTENT).touch()

    try:
        made = check_backup(folder)
    except ClientError:
        return
    assert made.bytes == 0
    assert all(int(str(made.info["state"][name])) >= 0 for name in ("bytes", "last_seq"))


@contextmanager
def inherited(content: bytes) -> Iterator[str]:
    """A descriptor that another thread writes into, as a shell passes `<(command)`."""
    reading, writing = os.pipe()

    def write() -> None:
        with os.fdopen(writing, "wb") as file:
            file.write(content)

    writer = Thread(target=write)
    writer.start()
    try:
        yield f"/dev/fd/{reading}"
    finally:
        os.close(reading)
        writer.join()


def test_what_a_shell_passes_as_a_descriptor_is_read() -> None:
    with inherited(b'{"spec": 1}') as path:
        assert _content(path) == b'{"spec": 1}'


def test_a_folder_with_too_many_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodepool.client.manifests.FILES_MAX", 2)
    for number in range(3):
        (tmp_path / f"{number}.yaml").touch()

    with pytest.raises(ManifestError, match="holds more than 2 files; name smaller folders"):
        read_manifests([str(tmp_path)])
    assert FILES_MAX == 10_000
