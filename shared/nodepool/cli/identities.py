"""The folder of the identities, as every command of `nodepool auth` finds, changes and shows it."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from nodepool.cli.errors import DONE, UNREACHABLE, CliError
from nodepool.cli.output import print_error, print_note, print_text

if TYPE_CHECKING:
    from nodepool.auth.accounts import User
    from nodepool.auth.folder import AuthFolder
    from nodepool.auth.users import Users

F = TypeVar("F", bound=Callable[..., object])
PATH = click.Path(path_type=Path)


def with_folder(function: F) -> Callable[..., object]:
    """Add `--dir`, and pass the folder as the parameter `folder`."""

    @wraps(function)
    def command(*args: object, auth_dir: Path | None, **rest: object) -> object:
        with _explained():
            return function(*args, folder=_folder(auth_dir), **rest)

    return click.option(
        "--dir",
        "auth_dir",
        type=PATH,
        envvar="NODEPOOL_AUTH_DIR",
        show_envvar=True,
        metavar="DIR",
        help="The folder of the identities.  [default: auth in the data directory of 'up']",
    )(command)


def changing(function: F) -> Callable[..., object]:
    """Add `--dir` and `--signal-pid`; the function changes the folder, then the server reads it."""
    return _changing(function, is_taking=False)


def taking_access(function: F) -> Callable[..., object]:
    """Add the same; it is an error if there is no server, which would let in as before."""
    return _changing(function, is_taking=True)


def _changing(function: F, *, is_taking: bool) -> Callable[..., object]:
    @wraps(function)
    def command(*args: object, folder: "AuthFolder", pid: int | None, **rest: object) -> int:
        function(*args, folder=folder, **rest)
        if _reload(folder, pid):
            return DONE
        advice = "make it do so: 'kill -HUP PID', --signal-pid PID, or a restart"
        if is_taking:
            text = f"the old credentials work until the server has read {folder.accounts_file}"
            print_error(f"{text}, and none was found: {advice}")
            return UNREACHABLE
        print_note(f"found no server that uses {folder.accounts_file}; if there is one, {advice}")
        return DONE

    return click.option(
        "--signal-pid",
        "pid",
        type=click.IntRange(min=1),
        metavar="PID",
        help="The process of the server that uses the folder.  [default: that of 'nodepool up']",
    )(with_folder(command))


def known_names(context: click.Context, parameter: click.Parameter, text: str) -> list[str]:
    """Return the organisations, users or identities that the folder knows."""
    from nodepool.auth.users import AuthError

    given = context.params
    found: Sequence[str] = ()
    with suppress(AuthError):
        users = _folder(given.get("auth_dir")).users()
        organisations = [each.name for each in users.organisations]
        titles = [title_of(*each) for each in identities(users)]
        match parameter.name, given.get("who") or ():
            case "as_user", _:
                found = titles
            case "who", (org, *_):
                found = [title.partition("/")[2] for title in titles if title.startswith(f"{org}/")]
            case "who", _:
                found = [*organisations, *(title for title in titles if "/" not in title)]
            case _:
                found = organisations
    return [each for each in found if each.startswith(text)]


def identities(users: "Users") -> Iterator[tuple[str, str, str, str, "User"]]:
    """Yield organisation, name, role and cluster of every user, and the user."""
    for user in (*users.platform, *users.system):
        yield "", user.name, "<platform>", "", user
    for org in users.organisations:
        for each in org.members:
            yield org.name, each.user.name, each.role, each.cluster, each.user


def title_of(org: str, name: str, *_: object) -> str:
    """Return a user as a person writes it: `acme/alice`."""
    return f"{org}/{name}" if org else name


def _reload(folder: "AuthFolder", pid: int | None) -> bool:
    """Make the server use the accounts; return whether a server was found."""
    from nodepool.local.reloading import LOG, reload_server, running_server

    log = None
    if pid is None:
        data_dir = folder.path.absolute().parent
        pid, log = running_server(data_dir), data_dir / LOG
    if pid is None:
        return False
    reload_server(pid, log)
    is_sure = log is not None
    print_text(f"process {pid} {'has read' if is_sure else 'was told to read'} its accounts")
    return True


def _folder(auth_dir: Path | None) -> "AuthFolder":
    from nodepool.auth.folder import AuthFolder

    return AuthFolder(auth_dir or Path(os.environ.get("NODEPOOL_DATA_DIR", ".nodepool")) / "auth")


@contextmanager
def _explained() -> Iterator[None]:
    from nodepool.auth.users import AuthError
    from nodepool.local.errors import ServerError
    from nodepool.nats.wire.errors import AccessError

    try:
        yield
    except (AuthError, ServerError, AccessError) as error:
        raise CliError(str(error)) from None
