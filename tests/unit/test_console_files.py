"""The files that the console sends to browsers: those of others are as they were published."""

import hashlib
import re

import pytest

from console.host.files import STATIC
from console.host.rendering import FOLDER, environment

VENDORED = {
    "htmx.min.js": "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130",
    "hx-csp.min.js": "a7e1e6711ae6c3e50ad300fba7936cbe8d07599cdae313414a179ddd6b26e143",
    "hx-sse.min.js": "18ef2761356ec1fe0bb6d92612315b37517a7c1e9856b661c5ae81fef239d103",
}
"""The SHA-256 of each file of the npm package htmx.org 4.0.1, whose own SHA-512 in base64 is
oF7JgXhDW9UXCy/k1ZYFUQgzu/rm19ORWPSPNL91vPluB2PB9+MV55tyQdH/w7o2EAbTYUG5SDW1R60mdkdqGg==."""
STYLE_BYTES_MAX = 25 * 1024
LOAD_BYTES_MAX = 150 * 1024


@pytest.mark.parametrize("name", VENDORED)
def test_a_file_of_htmx_is_as_it_was_published(name: str) -> None:
    assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == VENDORED[name]


def test_the_licence_of_htmx_is_beside_it() -> None:
    assert "Zero-Clause BSD" in (STATIC / "htmx.LICENSE").read_text()


def test_the_style_and_all_files_together_stay_small() -> None:
    sizes = {path.name: path.stat().st_size for path in STATIC.iterdir()}

    assert sizes["console.css"] <= STYLE_BYTES_MAX
    assert sum(sizes.values()) <= LOAD_BYTES_MAX


def test_a_theme_changes_colours_alone() -> None:
    style = (STATIC / "console.css").read_text()
    colour = "#[0-9a-f]{3,6}"

    # Stories in browsers audit a page in the second theme for its colours alone.
    assert "prefers-color-scheme" not in style
    assert style.count("light-dark(") == len(
        re.findall(rf"--[a-z]+: light-dark\({colour}, {colour}\)", style)
    )


def test_no_template_has_style_or_script_of_its_own_or_from_elsewhere() -> None:
    frame = '<style nonce="{{ nonce }}">{{ style }}</style>'
    inline = re.compile(r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]* src=)|https?://", re.I)

    found = [
        (path.name, line)
        for path in (FOLDER / "templates").iterdir()
        for line in inline.findall(path.read_text(encoding="utf-8").replace(frame, ""))
    ]

    assert found == []


def test_nothing_is_marked_as_safe_markup_in_a_template() -> None:
    marked = [
        match
        for path in (FOLDER / "templates").iterdir()
        for match in re.findall(r"[^{}]*\|\s*safe\b", path.read_text(encoding="utf-8"))
    ]

    assert marked == []


def test_every_template_can_be_read() -> None:
    for path in (FOLDER / "templates").iterdir():
        environment().get_template(path.name)


def test_no_template_imports_macros_with_its_context() -> None:
    """Jinja creates a module that is imported so for each page: slower, and it stays in memory."""
    importing = [
        path.name
        for path in (FOLDER / "templates").iterdir()
        if re.search(r"\bwith\s+context\b", path.read_text(encoding="utf-8"))
    ]

    assert importing == []
