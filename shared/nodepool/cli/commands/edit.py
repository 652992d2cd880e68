"""`nodepool edit`: opens a NodePool in an editor and stores the saved text."""

import os
import shlex
import signal
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nodepool.cli.errors import DONE, REFUSED, CliError
from nodepool.cli.names import NODEPOOL, parse_required_names
from nodepool.cli.options import Output, objects_argument, output_options
from nodepool.cli.output import as_yaml, print_error, print_note
from nodepool.cli.settings import Command, Settings
from nodepool.nats.wire.files import read_given

if TYPE_CHECKING:
    from nodepool.client import Client
    from nodepool.contract.documents import Document

HEADER = """\
# Please edit the NodePool below. Lines that begin with a '#' are ignored, and an empty file stops
# the edit. If what is saved cannot be stored, the file is opened again with the reason.
#
"""


@click.command(cls=Command)
@objects_argument((NODEPOOL,), "nodepool NAME...")
@output_options()
@click.pass_obj
def edit(settings: Settings, what: tuple[str, ...], output: Output) -> int:
    """Edit NodePools in an editor, one after the other.

    The editor is KUBE_EDITOR, else EDITOR, else vi. What others changed meanwhile is kept; where
    both changed the same field, nothing is stored.
    """
    _, names = parse_required_names(what, (NODEPOOL,))
    return max(_edit(settings, name, output) for name in names)


def _edit(settings: Settings, name: str, output: Output) -> int:
    """Edit one NodePool and return the exit code."""
    from nodepool.client import ClientError
    from nodepool.client.manifests import ManifestError, stored_document

    async def read(client: "Client") -> "Document":
        return stored_document(await client.nodepools.read_stored(name))

    document = settings.result(read)
    original = as_yaml(document)
    shown, reason = original, ""
    file = _new_file(name)
    while True:
        saved = _run_editor(file, shown, reason)
        if not saved or saved == original:
            _note_cancelled(file, saved, is_first=not reason)
            return REFUSED if reason else DONE
        if saved == shown:
            raise CliError(f"nothing was changed after the refusal; your edit is kept in {file}")
        try:
            code = settings.result(partial(_store, document, saved, output))
        except (ClientError, ManifestError, CliError) as error:
            if not _can_be_mended(error):
                print_note(f"Your edit is kept in {file}")
                raise
            shown, reason = saved, str(error)
            print_error(reason)
            continue
        file.unlink(missing_ok=True)
        return code


def _can_be_mended(error: Exception) -> bool:
    """Return whether another edit may be stored after this edit was not."""
    from nodepool.client import Refused
    from nodepool.client.manifests import ManifestError

    return isinstance(error, ManifestError | _Unfit) or (
        isinstance(error, Refused) and error.reason in ("Invalid", "Forbidden")
    )


class _Unfit(CliError):
    """The saved text is not a valid change of the NodePool that was opened."""


async def _store(before: "Document", saved: str, output: Output, client: "Client") -> int:
    """Store the saved text; raise `CliError` if another change touched the same field."""
    from nodepool.cli.changing import change_one
    from nodepool.client.manifests import parse_yaml
    from nodepool.contract.merging import apply_merge_patch, conflicts, merge_patch

    after = parse_yaml(saved, "the edited file")
    if not isinstance(after, dict):
        raise _Unfit("the edited file is not a map")
    own = merge_patch(before, after)

    def revise(newest: "Document") -> "Document":
        others = merge_patch(before, newest)
        metadata = others.get("metadata")
        if isinstance(metadata, dict):
            for field in ("resourceVersion", "generation"):
                metadata.pop(field, None)
        clashes = conflicts(own, others)
        if clashes:
            raise CliError(f"{' and '.join(clashes)}: was changed by another meanwhile")
        changed = apply_merge_patch(newest, own)
        assert isinstance(changed, dict), "a map stays a map"
        return changed

    name = str(before["metadata"]["name"])  # type: ignore[index]  # An object has both.
    return await change_one(client, name, revise, lambda *_: "edited", output)


def _new_file(name: str) -> Path:
    descriptor, path = tempfile.mkstemp(prefix=f"nodepool-edit-{name[:40]}-", suffix=".yaml")
    os.close(descriptor)
    return Path(path)


def _run_editor(file: Path, text: str, reason: str) -> str:
    """Return the text saved in the editor, without comments.

    Raises `CliError` if the editor fails or the file cannot be read.
    """
    from nodepool.client.manifests import SIZE_MAX

    refusal = f"# It was not stored:\n# * {' '.join(reason.split())}\n#\n" if reason else ""
    file.write_text(f"{HEADER}{refusal}{text}\n", encoding="utf-8")
    editor = os.environ.get("KUBE_EDITOR") or os.environ.get("EDITOR") or "vi"
    # Only the editor handles Ctrl-C while it is open.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = subprocess.run([*shlex.split(editor), str(file)], check=False).returncode
    except (OSError, ValueError) as error:
        file.unlink(missing_ok=True)
        raise CliError(
            f"the editor {editor!r} cannot be run: {error}; set KUBE_EDITOR or EDITOR"
        ) from None
    finally:
        signal.signal(signal.SIGINT, before)
    if code != 0:
        raise CliError(f"the editor {editor!r} ended with exit code {code}; see {file}")
    try:
        content = read_given(file, SIZE_MAX)
        if len(content) > SIZE_MAX:
            raise CliError(f"{file} is larger than the {SIZE_MAX} bytes allowed")
        lines = content.decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{file} cannot be read: {error}") from None
    return "\n".join(line for line in lines if not line.startswith("#")).strip("\n")


def _note_cancelled(file: Path, saved: str, *, is_first: bool) -> None:
    if is_first:
        file.unlink(missing_ok=True)
        empty = "" if saved else ": the saved file was empty"
        print_note(f"Edit cancelled, no changes made{empty}")
    else:
        print_note(f"Edit cancelled, nothing was stored; your edit is kept in {file}")
