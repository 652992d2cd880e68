"""The folder with every identity of an installation, and what is made of them.

`users.json` is the one source: who there is, by public key, and with which role. `accounts.conf`,
which the configuration of the server includes, and `members.json`, which the gateway reads, follow
from it. `keys/` has the credentials of each user: a seed or a password, which is never stored
elsewhere.
"""

import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Final

from nodepool.auth.accounts import PLATFORM_USERS, SYSTEM_USER, Member, Proof, User
from nodepool.auth.credentials import KEY_SUFFIX, Secret, file_name, file_text, new_secret
from nodepool.auth.users import AuthError, Users, users_in, users_text
from nodepool.contract.services import EVERY
from nodepool.nats.wire.access import Access
from nodepool.nats.wire.credentials import nkey_of
from nodepool.nats.wire.errors import AccessError
from nodepool.service import AnyService

WAIT_S: Final = 10.0
"""How long to wait for another program that changes the folder."""
_POLL_S: Final = 0.02
_HEAD: Final = "# Written by 'nodepool auth' from users.json: never edit it.\n"
_MARK: Final = "# State: "
_CODE: Final = ("nodepool.contract", "nodepool.auth", *EVERY)
"""The packages that the rights of users derive from."""


class AuthFolder:
    """The identities of an installation in a folder, which a program changes under a lock."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def users_file(self) -> Path:
        """The document with every user: public keys and roles."""
        return self.path / "users.json"

    @property
    def accounts_file(self) -> Path:
        """The file that the configuration of the server includes."""
        return self.path / "accounts.conf"

    @property
    def members_file(self) -> Path:
        """The file with the users of organisations, which the gateway reads."""
        return self.path / "members.json"

    def key_file(self, user: str, org: str = "") -> Path:
        """Return where the seed of a user is; `org` is "" for the platform."""
        return self.path / "keys" / org / f"{user}{KEY_SUFFIX}"

    def credentials_file(self, user: User, org: str = "") -> Path:
        """Return where the seed or the password of a user is; `org` is "" for the platform."""
        return self.path / "keys" / org / file_name(user.name, user.proof)

    def access(self, user: str, org: str = "") -> Access:
        """Return what a connection of a user with a key shows to the server."""
        return Access(nkey_file=str(self.key_file(user, org)))

    def users(self) -> Users:
        """Return every user; raise AuthError if the folder has none or cannot be read."""
        users = self._read()
        if users is None:
            raise AuthError(f"{self.path} has no identities; make them with 'nodepool auth init'")
        return users

    def init(self) -> bool:
        """Make what is missing for the platform; return whether a file has changed.

        The key of a user of the platform is the key of the seed in its file. A new seed is made if
        the file is missing. Raises AuthError if the folder cannot be read or written.
        """
        with self._locked():
            users = before = self._read()
            if users is None and self.accounts_file.exists():
                text = f"{self.users_file} is missing, and {self.accounts_file} is there"
                raise AuthError(f"{text}; restore the missing file, or remove the folder")
            users = users or Users()
            made = dict[Path, str]()
            for name in (*PLATFORM_USERS, SYSTEM_USER):
                if self.key_file(name).exists():
                    key = self._key(name)
                else:
                    secret = new_secret()
                    made |= self._file(secret, name, "platform")
                    key = secret.proof.key
                users = users.with_platform_key(name, key)
            if not made and users == before and self._is_current(users_text(users)):
                return False
            self._write(users, made)
            return True

    def change(self, edit: Callable[[Users], Users]) -> Users:
        """Write the users that `edit` returns for the present ones; return them."""
        with self._locked():
            users = edit(self.users())
            self._write(users)
            return users

    def add_member(
        self, org: str, make: Callable[[Proof], Member], *, by_password: bool = False
    ) -> Member:
        """Add the user of an organisation that `make` returns for what the server knows of it."""
        secret = new_secret(by_password=by_password)
        member = make(secret.proof)
        with self._locked():
            users = self.users().with_member(org, member)
            self._write(users, self._file(secret, member.user.name, member.title, org))
        return member

    def rotate(self, *who: tuple[str, str]) -> list[Path]:
        """Give users new credentials, and return their files.

        Once the server has reloaded, the old credentials are refused.

        who: organisation and name of each user; the organisation is "" for the platform.
        """
        with self._locked():
            users, made = self.users(), dict[Path, str]()
            for org, name in who:
                if org:
                    member = users.member(org, name)
                    secret = new_secret(by_password=bool(member.user.proof.password))
                    made |= self._file(secret, name, member.title, org)
                    users = users.with_proof(org, name, secret.proof)
                else:
                    self._check_platform(users, name)
                    secret = new_secret()
                    made |= self._file(secret, name, "platform")
                    users = users.with_platform_key(name, secret.proof.key)
            self._write(users, made)
            return list(made)

    def revoke(self, name: str, org: str) -> None:
        """Remove a user of an organisation, and its credentials."""
        with self._locked():
            users = self.users()
            if not org:
                self._check_platform(users, name)
                text = f"the platform needs {name}; give it a new key instead"
                raise AuthError(f"{text}, with 'nodepool auth rotate {name}'")
            user = users.member(org, name).user
            self._write(users.without_member(org, name))
            with self._explained():
                self.credentials_file(user, org).unlink(missing_ok=True)

    def _check_platform(self, users: Users, name: str) -> None:
        if users.of_platform(name) is None:
            known = ", ".join((*PLATFORM_USERS, SYSTEM_USER))
            text = f"the platform has no user {name} (known: {known})"
            raise AuthError(f"{text}; name the organisation of another user before the user")

    def _read(self) -> Users | None:
        try:
            content = self.users_file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise AuthError(f"cannot read {self.users_file}: {error.strerror}") from None
        try:
            return users_in(content.decode())
        except (ValueError, RecursionError) as error:
            text = f"{self.users_file} cannot be used: {' '.join(str(error).split())}"
            raise AuthError(f"{text}; restore it from a backup") from None

    def _write(self, users: Users, made: Mapping[Path, str] = MappingProxyType({})) -> None:
        """Write everything, the source last: what is interrupted before can be done again."""
        source = users_text(users)
        accounts = f"{_HEAD}{_MARK}{_state_of(source)}\n{users.accounts_text(load_services())}"
        texts = {
            **made,
            self.accounts_file: accounts,
            self.members_file: users.members_text(),
            self.users_file: source,
        }
        with self._explained():
            replace_files(texts)

    def _is_current(self, source: str) -> bool:
        """Return whether the files follow from this source and from this program."""
        try:
            with self.accounts_file.open(encoding="utf-8") as file:
                head, mark = file.readline(), file.readline()
        except (OSError, ValueError):
            return False
        is_same = head == _HEAD and mark == f"{_MARK}{_state_of(source)}\n"
        return is_same and self.members_file.exists()

    def _key(self, name: str) -> str:
        try:
            return nkey_of(str(self.key_file(name))).public_key
        except AccessError as error:
            text = f"the credentials of {name}: {error}"
            raise AuthError(f"{text}; restore the file, or remove it to get a new key") from None

    def _file(self, secret: Secret, name: str, title: str, org: str = "") -> dict[Path, str]:
        path = self.credentials_file(User(name, secret.proof), org)
        return {path: file_text(secret, org, name, title)}

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Let no other program change the folder; raise AuthError if another one keeps it."""
        with self._explained():
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            deadline = time.monotonic() + WAIT_S
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        text = f"another program changes {self.path}"
                        raise AuthError(f"{text}; try again when it has ended") from None
                    time.sleep(_POLL_S)
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            text = f"cannot write {error.filename or self.path}: {error.strerror}"
            raise AuthError(f"{text}; choose another folder, or fix that") from None


def load_services() -> list[AnyService]:
    """Return every service, from which the rights of its user derive."""
    return [import_module(f"{name}.decide").SERVICE for name in EVERY]


def replace_files(texts: Mapping[Path, str]) -> None:
    """Replace files, each as a whole; only their owner may read them.

    None of them changes before all of them are stored: a full disk changes nothing.
    """
    news = {path: path.with_name(f".{path.name}.new") for path in texts}
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        for path, new in news.items():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(new, flags, 0o600), "w", encoding="utf-8") as file:
                file.write(texts[path])
                file.flush()
                os.fsync(file.fileno())
    except OSError:
        for new in news.values():
            with suppress(OSError):
                new.unlink()
        raise
    for path, new in news.items():
        new.replace(path)
    for folder in {path.parent for path in news}:
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _state_of(source: str) -> str:
    """Return a digest of the users and of the program, which changes if the accounts may do so.

    Loading all services takes longer than looking at their files.
    """
    digest = hashlib.sha256(source.encode())
    for name in _CODE:
        spec = find_spec(name)
        for place in (spec and spec.submodule_search_locations) or ():
            for path in sorted(Path(place).rglob("*.py")):
                stat = path.stat()
                digest.update(f"{path} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()
