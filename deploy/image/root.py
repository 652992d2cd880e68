"""Copies what the image needs of its base: `python -m image.root /root`.

That is the interpreter and its library without what only developers use, the packages installed
beside it, the shared libraries that any of these load, and the certificates. There is no shell, no
package manager and no pip. Scanners find the names and versions of the system's packages where
distroless images have them, in var/lib/dpkg/status.d.
"""

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from image.symbols import strip

PURE = Path(sysconfig.get_path("stdlib"))
PYTHON = Path(sys.executable).resolve()
UNUSED = frozenset(
    {
        *("__phello__", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "tests"),
        *("tkinter", "turtle.py", "turtledemo", "venv", "__pycache__"),
        *("pip", "setuptools", "wheel", "_distutils_hack", "distutils-precedence.pth"),
    }
)
"""Files and folders of the library that nothing in the image imports."""
_UNUSED_NAME = re.compile(
    r"config-.*|(pip|setuptools|wheel)-.*\.dist-info"
    # What shared libraries were made from.
    r"|.*\.(c|h|pxd|pyi|pyx)"
    # Modules whose shared libraries are large, or are not in every base.
    r"|_?(curses|curses_panel|dbm|gdbm|sqlite3|tkinter|test\w*|xx\w+|ctypes_test|readline)\..*\.so"
)
SYSTEM_FILES = ("/etc/os-release", "/etc/ssl/certs/ca-certificates.crt")
USER = "nodepool:x:10001:10001:nodepool:/nonexistent:/usr/sbin/nologin\n"


def make(root: Path) -> None:
    """Fill an empty folder with the file system of the image."""
    for folder in ("usr/lib", "usr/lib64", "usr/local/bin", "etc", "proc", "sys", "dev"):
        root.joinpath(folder).mkdir(parents=True)
    root.joinpath("tmp").mkdir()
    # Not the mode of `mkdir`, which leaves out what the umask says.
    root.joinpath("tmp").chmod(0o1777)
    for name in ("lib", "lib64"):
        root.joinpath(name).symlink_to(f"usr/{name}")
    _copy_python(root)
    for library in root.rglob("*.so"):
        if not library.is_symlink():
            strip(library)
    libraries = set(_libraries(root))
    for library in (*libraries, *map(Path, SYSTEM_FILES)):
        _copy(library, root)
    _describe(root, libraries)
    root.joinpath("etc/passwd").write_text("root:x:0:0:root:/root:/usr/sbin/nologin\n" + USER)
    root.joinpath("etc/group").write_text("root:x:0:\nnodepool:x:10001:\n")
    root.joinpath("etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files dns\n")
    root.joinpath("etc/ld.so.conf").write_text("/usr/local/lib\n")
    subprocess.run(["ldconfig", "-X", "-r", str(root)], check=True)


def _copy_python(root: Path) -> None:
    binary = root / PYTHON.relative_to("/")
    binary.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(PYTHON, binary)
    for name in ("python", "python3"):
        link = root / "usr/local/bin" / name
        if not link.exists():
            link.symlink_to(PYTHON)
    shutil.copytree(PURE, root / PURE.relative_to("/"), symlinks=True, ignore=_unused)
    packages = Path(sysconfig.get_path("purelib"))
    if not packages.is_relative_to(PURE):
        shutil.copytree(packages, root / packages.relative_to("/"), ignore=_unused)


def _unused(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if name in UNUSED or _UNUSED_NAME.fullmatch(name)}


def _libraries(root: Path) -> Iterator[Path]:
    """Every shared library that the files of the image load, directly or through others."""
    files = [path for path in root.rglob("*") if path.is_file() and ".so" in path.name]
    for path in (*files, root / PYTHON.relative_to("/")):
        text = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
        if missing := re.findall(r"(\S+) => not found", text):
            sys.exit(f"{path.relative_to(root)} needs {', '.join(missing)}, which the base has not")
        yield from map(Path, re.findall(r"(/\S+) \(0x", text))


def _copy(path: Path, root: Path) -> None:
    """Copy a file of the base, with the content of what it may link to."""
    place = root / (path.parent.resolve() / path.name).relative_to("/")
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path.resolve(), place)


def _describe(root: Path, libraries: set[Path]) -> None:
    """Write down which of the system's packages the libraries are from, as scanners read it."""
    folder = root / "var/lib/dpkg/status.d"
    folder.mkdir(parents=True)
    for package in {"ca-certificates", *map(_package, libraries)} - {""}:
        stanza = subprocess.run(["dpkg-query", "-s", package], capture_output=True, check=False)
        if stanza.returncode == 0:
            folder.joinpath(package.partition(":")[0]).write_bytes(stanza.stdout)


def _package(library: Path) -> str:
    """Return the system's package that a file is from; empty for one that is from none."""
    for path in (library, library.resolve(), Path(str(library.resolve()).removeprefix("/usr"))):
        found = subprocess.run(
            ["dpkg-query", "-S", path], capture_output=True, text=True, check=False
        )
        if found.returncode == 0:
            return found.stdout.rpartition(": ")[0].split(",")[0].strip()
    return ""


if __name__ == "__main__":
    make(Path(sys.argv[1]))
