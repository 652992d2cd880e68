"""Images in place of those that cannot be pulled, made from what this machine and Debian have.

What differs: Python is this machine's 3.13 where pyenv has it, otherwise Debian's; the servers are
those of the wheel and of Debian; `grafana` is not Grafana, see `grafana.py`;
and the exporter is `nats_exporter.py`.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nodepool" / "containers"
SUITE = "bookworm"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
BOOTSTRAP_S = 600
_ENTRYPOINT = """#!/bin/sh
case "$1" in -*) set -- nats-server "$@" ;; esac
exec "$@"
"""
_PIP = """#!{python}
import sys
from pip._internal.cli.main import main
sys.exit(main())
"""


class Missing(Exception):
    """An image can neither be pulled nor be made here; why, in one line."""


class StandIn(NamedTuple):
    """An image that can be made here.

    make: fills a folder with its file system.
    changes: what its configuration says, as instructions of a Dockerfile.
    """

    make: Callable[[Path], None]
    changes: Sequence[str]


# What they are made of.


def _tool(name: str) -> Path:
    path = shutil.which(name)
    if path is None:
        raise Missing(f"there is no {name} here: on Debian, `apt-get install {name}` may bring it")
    return Path(path)


def _put(source: Path, root: Path, place: str) -> None:
    target = root / place
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def _program(source: Path, root: Path, place: str) -> None:
    """Copies a program and the libraries that it loads."""
    _put(source, root, place)
    text = subprocess.run(["ldd", source], capture_output=True, text=True, check=False).stdout
    for library in re.findall(r"(/\S+) \(0x", text):
        _put(Path(library), root, library.lstrip("/"))


def _busybox(root: Path) -> None:
    """A shell and the tools of an image on Alpine Linux, `wget` among them."""
    busybox = _tool("busybox")
    _program(busybox, root, "bin/busybox")
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout
    for name in listed.split():
        if name != "busybox":
            root.joinpath("bin", name).symlink_to("busybox")
    root.joinpath("tmp").mkdir()
    root.joinpath("tmp").chmod(0o1777)
    root.joinpath("etc").mkdir()
    root.joinpath("etc/passwd").write_text(
        "root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"
    )
    root.joinpath("etc/nsswitch.conf").write_text("hosts: files dns\n")


def _debian() -> Path:
    """An archive of Debian's smallest system with Python; made once, then from the cache."""
    archive = CACHE / f"{SUITE}-minbase-1.tar"
    if archive.exists():
        return archive
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        root = Path(folder) / "root"
        packages = "ca-certificates,python3,python3-pip"
        options = ["--variant=minbase", f"--include={packages}"]
        command = [str(_tool("debootstrap")), *options, SUITE, str(root)]
        try:
            done = subprocess.run(command, capture_output=True, check=False, timeout=BOOTSTRAP_S)
        except subprocess.TimeoutExpired:
            raise Missing(f"debootstrap took more than {BOOTSTRAP_S} s") from None
        if done.returncode:
            last = done.stdout.decode(errors="replace").strip().rpartition("\n")[2]
            raise Missing(f"debootstrap failed: {last}")
        for used in ("var/cache/apt", "var/lib/apt/lists"):
            shutil.rmtree(root / used, ignore_errors=True)
        unfinished = archive.with_suffix(".part")
        subprocess.run(["tar", "-C", root, "-cf", unfinished, "."], check=True)
        # Last, so that one which was cut short is made anew.
        unfinished.replace(archive)
    return archive


def _python(root: Path) -> None:
    subprocess.run(["tar", "-C", root, "-xf", _debian()], check=True)
    if CERTIFICATES.exists():
        # What this machine trusts, the build has to trust as well.
        _put(CERTIFICATES, root, str(CERTIFICATES).lstrip("/"))
    found = sorted(Path.home().glob(".pyenv/versions/3.13.*"))
    (_own_python if found else _debian_python)(root, *found[-1:])
    for name in ("python", "python3"):
        link = root / "usr/local/bin" / name
        link.unlink(missing_ok=True)
        link.symlink_to("python3.13" if found else "/usr/bin/python3")


def _own_python(root: Path, version: Path) -> None:
    local = root / "usr/local"
    for place in ("bin", "lib"):
        local.joinpath(place).mkdir(exist_ok=True)
    shutil.copy2(version / "bin/python3.13", local / "bin")
    for library in version.glob("lib/libpython3*"):
        shutil.copy2(library, local / "lib", follow_symlinks=False)
    left_out = shutil.ignore_patterns("__pycache__", "config-3*", "test", "idlelib", "*.pth")
    library = shutil.copytree(version / "lib/python3.13", local / "lib/python3.13", ignore=left_out)
    # Shared libraries of theirs that the smallest Debian has not.
    for name in ("_tkinter", "_curses", "_curses_panel", "_sqlite3", "readline", "_dbm", "_gdbm"):
        for module in Path(library).glob(f"lib-dynload/{name}.*"):
            module.unlink()
    if strip := shutil.which("strip"):
        objects = [*local.rglob("*.so*"), local / "bin/python3.13"]
        subprocess.run([strip, "--strip-unneeded", *objects], check=False, capture_output=True)
    pip = local / "bin/pip"
    pip.write_text(_PIP.format(python="/usr/local/bin/python3.13"))
    pip.chmod(0o755)
    subprocess.run(["ldconfig", "-r", root], check=True)


def _debian_python(root: Path) -> None:
    for marker in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        marker.unlink()


def _nats(root: Path) -> None:
    from nodepool.local.binary import find_server

    _busybox(root)
    _put(find_server(os.environ.get("NODEPOOL_NATS_SERVER")), root, "usr/local/bin/nats-server")
    script = root / "docker-entrypoint.sh"
    script.write_text(_ENTRYPOINT)
    script.chmod(0o755)


def _exporter(root: Path) -> None:
    _python(root)
    _put(HERE / "nats_exporter.py", root, "nats_exporter.py")
    _put(_tool("busybox"), root, "usr/local/bin/wget")


def _prometheus(root: Path) -> None:
    _busybox(root)
    _program(_tool("prometheus"), root, "bin/prometheus")
    _folder(root / "prometheus", 65534)
    root.joinpath("etc/prometheus").mkdir()


def _alertmanager(root: Path) -> None:
    _busybox(root)
    with tempfile.TemporaryDirectory() as folder:
        apt = ["apt-get", "download", "prometheus-alertmanager"]
        if subprocess.run(apt, cwd=folder, check=False, capture_output=True).returncode:
            raise Missing("Debian's prometheus-alertmanager cannot be downloaded")
        (package,) = Path(folder).glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", package, f"{folder}/x"], check=True)
        binary = Path(folder, "x/usr/bin/prometheus-alertmanager")
        _program(binary, root, "bin/alertmanager")
        # Debian's has its templates beside it, not inside.
        shutil.copytree(Path(folder, "x/usr/share/prometheus"), root / "usr/share/prometheus")
    _folder(root / "alertmanager", 65534)
    root.joinpath("etc/alertmanager").mkdir()


def _grafana(root: Path) -> None:
    _python(root)
    _put(HERE / "grafana.py", root, "grafana.py")
    _put(_tool("busybox"), root, "usr/local/bin/wget")
    import yaml

    shutil.copytree(Path(yaml.__file__).parent, root / "opt/yaml", ignore=_compiled)
    _folder(root / "var/lib/grafana", 472)
    root.joinpath("etc/grafana").mkdir()


def _compiled(_folder: str, names: list[str]) -> set[str]:
    return {name for name in names if name == "__pycache__" or name.endswith(".so")}


def _folder(path: Path, owner: int) -> None:
    path.mkdir(parents=True)
    os.chown(path, owner, owner)


_PATH = "ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
STAND_INS: Mapping[str, StandIn] = {
    "PYTHON_IMAGE": StandIn(_python, [_PATH, "ENV LANG=C.UTF-8", 'CMD ["python3"]']),
    "NATS_IMAGE": StandIn(
        _nats,
        [_PATH, 'ENTRYPOINT ["/docker-entrypoint.sh"]', 'CMD ["nats-server"]', "EXPOSE 4222"],
    ),
    "NATS_EXPORTER_IMAGE": StandIn(
        _exporter, [_PATH, "USER nobody", 'ENTRYPOINT ["python", "/nats_exporter.py"]']
    ),
    "PROMETHEUS_IMAGE": StandIn(
        _prometheus, [_PATH, "USER nobody", 'ENTRYPOINT ["/bin/prometheus"]', "WORKDIR /prometheus"]
    ),
    "ALERTMANAGER_IMAGE": StandIn(
        _alertmanager,
        [_PATH, "USER nobody", 'ENTRYPOINT ["/bin/alertmanager"]', "WORKDIR /alertmanager"],
    ),
    "GRAFANA_IMAGE": StandIn(
        _grafana,
        [_PATH, "USER 472", "ENV PYTHONPATH=/opt", 'ENTRYPOINT ["python", "/grafana.py"]'],
    ),
}
