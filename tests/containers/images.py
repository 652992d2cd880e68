"""The images that the compose file starts from: themselves, or what stands for them here."""

import hashlib
import inspect
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from containers import stand_ins
from containers.stand_ins import HERE, STAND_INS, Missing, StandIn

PREFIX = "nodepool-stand-in/"
LABEL = "nodepool.stand-in"
"""What tells a stand-in, whatever its name."""
PULL_S = 120


def names() -> Mapping[str, str]:
    """The images that the compose file and the Dockerfiles start from, by the variable of each."""
    root = HERE.parents[1]
    files = [root / "docker-compose.yml", *root.glob("deploy/*Dockerfile")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    return dict(sorted(re.findall(r"\$\{(\w+_IMAGE):-([^}\s]+)\}", text)))


def images() -> Mapping[str, str]:
    """What stands for each of these images, by the name of the image.

    It is the image itself where it is here or can be pulled, and a stand-in where not. Raises
    Missing.
    """
    return {name: _image(variable, name) for variable, name in names().items()}


@contextmanager
def under_their_names(used: Mapping[str, str]) -> Iterator[None]:
    """Gives each stand-in the name of the image whose place it takes, for as long as this lasts."""
    ours = {name: image for name, image in used.items() if name != image}
    for name, image in ours.items():
        subprocess.run(["docker", "tag", image, name], check=True, capture_output=True)
    try:
        yield
    finally:
        for name in ours:
            _docker("image", "rm", name)


def _image(variable: str, name: str) -> str:
    if _is_itself(name) or _docker("pull", "--quiet", name):
        return name
    if variable not in STAND_INS:
        raise Missing(f"{name} cannot be pulled, and has no stand-in")
    # Named after what it is made by: another recipe is another image.
    stand_in = STAND_INS[variable]
    recipe = "".join([*sorted(_sources(stand_in.make)), *_instructions(stand_in)])
    number = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    ours = f"{PREFIX}{variable.removesuffix('_IMAGE').lower()}:{number}"
    if not _docker("image", "inspect", ours):
        _import(stand_in, ours)
        _remove_others(ours)
    return ours


def _is_itself(name: str) -> bool:
    """Whether an image is here, and is no stand-in whose name a killed run has left."""
    label = f'{{{{index .Config.Labels "{LABEL}"}}}}'
    command = ["docker", "image", "inspect", "--format", label, name]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PULL_S)
    return done.returncode == 0 and not done.stdout.strip()


def _sources(function: Callable[..., object]) -> set[str]:
    """The source of a recipe and of the functions that it calls, and the files that it names."""
    texts: set[str] = set()
    waiting = {function}
    while waiting:
        text = inspect.getsource(waiting.pop())
        if text in texts:
            continue
        named = {vars(stand_ins).get(name) for name in re.findall(r"\b_[A-Za-z_]+\b", text)}
        waiting |= {each for each in named if inspect.isfunction(each)}
        texts |= {text, *(each for each in named if isinstance(each, str))}
        texts |= {HERE.joinpath(name).read_text() for name in re.findall(r'HERE / "(\S+)"', text)}
    return texts


def _docker(*args: str) -> bool:
    try:
        done = subprocess.run(["docker", *args], capture_output=True, check=False, timeout=PULL_S)
    except subprocess.TimeoutExpired:
        # A registry that does not answer is one from which nothing can be pulled.
        return False
    return done.returncode == 0


def _instructions(stand_in: StandIn) -> list[str]:
    return [*stand_in.changes, f"LABEL {LABEL}=yes"]


def _import(stand_in: StandIn, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        root.mkdir()
        stand_in.make(root)
        changes = [part for each in _instructions(stand_in) for part in ("--change", each)]
        with subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE) as tar:
            command = ["docker", "import", *changes, "-", name]
            subprocess.run(command, stdin=tar.stdout, check=True, capture_output=True)


def _remove_others(name: str) -> None:
    """Removes the stand-ins that earlier recipes made; those in use stay."""
    listing = ["docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}}"]
    command = [*listing, name.partition(":")[0]]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    for other in {*listed.split()} - {name}:
        _docker("image", "rm", other)
