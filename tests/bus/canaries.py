"""Secrets to look for in whatever is written, and settings that are wrong and have them."""

import base64
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from nodepool.auth.folder import AuthFolder
from support.certificates import certificates, client_certificate, encrypt
from support.nats_users import credentials, key, user_jwt

WINDOW, STEP = 12, 6
"""How long a piece of a secret may not be written anywhere, and where such pieces begin."""
PASSWORD, TOKEN = "canary-K7vXq2mTz9LwRb4N", "canary.t0k3n-Zp8YcVh3WfJd6QsE"


class Canaries:
    """Secrets, and the places in which a piece of one was found."""

    def __init__(self) -> None:
        self._secrets = dict[str, str]()

    def plant(self, name: str, secret: str) -> str:
        """Look for a secret from now on; return it."""
        self._secrets[f"{name} {len(self._secrets)}"] = secret
        return secret

    def plant_seed(self, name: str, seed: str) -> None:
        """Look for a seed, and for the bytes that it stands for as hexadecimal and base64 text."""
        raw = base64.b32decode(seed + "=" * (-len(seed) % 8))[2:-2]
        for secret in (seed, raw.hex(), base64.b64encode(raw).decode(), repr(raw)[2:-1]):
            self.plant(name, secret)

    def plant_key(self, path: Path) -> None:
        """Look for a private key in PEM, without its beginning, which names the kind of key."""
        secret = "".join(path.read_text().splitlines()[1:-1])
        self.plant(path.name, secret[len(secret) // 3 :])

    def plant_folder(self, auth: AuthFolder) -> None:
        """Look for every seed and every password in a folder of identities."""
        for path in auth.path.rglob("*.nk"):
            self.plant_seed(path.stem, path.read_text().split()[-1])
        for path in auth.path.rglob("*.password"):
            self.plant(path.stem, path.read_text().split()[-1])

    def found_in(self, written: Mapping[str, str]) -> set[str]:
        """Where there is a piece of a secret, and of which."""
        pieces = [
            (name, secret[at : at + WINDOW])
            for name, secret in self._secrets.items()
            for at in range(0, max(len(secret) - WINDOW, 0) + 1, STEP)
        ]
        return {
            f"{place}: {name}"
            for place, text in written.items()
            for name, piece in pieces
            if piece in text
        }


def broken(folder: Path, canaries: Canaries) -> Iterator[tuple[str, dict[str, str]]]:
    """Settings with a secret, each of which is wrong in its own way."""
    user = key("user", 7)
    canaries.plant_seed("seed", user.seed)
    token = user_jwt(user)
    for part in token.split(".")[1:]:
        canaries.plant("JWT", part)
    for name, text in (
        ("cut", user.seed[:-6]),
        ("twice", f"{user.seed}\n{user.seed}"),
        ("damaged", user.seed[:20] + "7" + user.seed[21:]),
        ("prefix", f"# inbox prefix: {PASSWORD} >\n{user.seed}"),
        ("other", PASSWORD),
    ):
        yield f"nkey {name}", {"NKEY_FILE": file_with(folder / f"{name}.nk", text)}
    for name, text in (
        ("cut", credentials(user, token[: len(token) // 2])),
        ("expired", credentials(user, user_jwt(user, expires=2))),
        ("foreign", credentials(user, user_jwt(key("user", 8)))),
        ("other", token),
    ):
        yield f"credentials {name}", {"CREDS_FILE": file_with(folder / f"{name}.creds", text)}
    for name, text in (("two lines", f"{PASSWORD}\n{TOKEN}"), ("bytes", f"{PASSWORD}\x01")):
        yield f"password {name}", {"PASSWORD_FILE": file_with(folder / f"{name}.txt", text)}
    # A secret where the path of its file belongs.
    yield "password as a path", {"PASSWORD_FILE": PASSWORD}
    yield "token as a path", {"METRICS_TOKEN_FILE": TOKEN}
    yield "seed as a path", {"NKEY_FILE": user.seed}
    yield "JWT as a path", {"CREDS_FILE": token}
    yield "credentials as a path", {"CREDS_FILE": credentials(user, token)}
    for name, url in (
        ("port", f"nats://me:{PASSWORD}@bus:x"),
        ("space", f"nats://me:{PASSWORD} @bus"),
        ("comma", f"nats://me:{PASSWORD},{PASSWORD}@bus"),
        ("path", f"tls://{TOKEN}@bus/{PASSWORD[:4]}"),
        ("bytes", os.fsdecode(f"nats://me:{PASSWORD}@bus\xff".encode("latin-1"))),
        ("scheme", f"http://me:{PASSWORD}@bus"),
    ):
        yield f"address with {name}", {"URL": url}
    both = {"URL": f"nats://me:{PASSWORD}@127.0.0.1:1"}
    yield "two passwords", {**both, "PASSWORD_FILE": file_with(folder / "own.txt", TOKEN)}


def file_with(path: Path, text: str) -> str:
    """The path of a new file with a text."""
    path.write_text(text)
    return str(path)


def broken_certificates(folder: Path, canaries: Canaries) -> Iterator[tuple[str, dict[str, str]]]:
    """Private keys that cannot be used."""
    made, (_, other) = certificates(folder), client_certificate(folder)
    locked = folder / "locked.key"
    encrypt(made.key, locked)
    text = made.key.read_text()
    for path in (made.key, other, locked):
        canaries.plant_key(path)
    cut = file_with(folder / "cut.key", text[: len(text) // 2])
    for name in (str(other), str(locked), cut, text):
        yield f"key {name[-12:]}", {"CERT_FILE": str(made.certificate), "KEY_FILE": name}
    yield "key as certificate", {"CERT_FILE": str(made.key)}
    yield "key as authority", {"CA_FILE": str(made.key)}


def processes(pid: int) -> dict[str, str]:
    """The command line of a process and of its descendants, and the environment of the latter."""
    children = list(descendants(pid))
    assert len(children) > 3
    files = [f"/proc/{each}/cmdline" for each in (pid, *children)]
    files += [f"/proc/{each}/environ" for each in children]
    return {file: Path(file).read_text(errors="replace") for file in files if Path(file).exists()}


def descendants(pid: int) -> Iterator[int]:
    """The processes that a process has started, and theirs."""
    for path in Path("/proc").glob("[0-9]*/task/*/children"):
        if path.parts[2] == str(pid):
            for child in path.read_text().split():
                yield int(child)
                yield from descendants(int(child))
