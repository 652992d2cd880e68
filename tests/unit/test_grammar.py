import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodepool.contract import grammar

Rule = Callable[[str], str | None]


def _cases(rule: Rule, *texts: tuple[str, str]) -> list[object]:
    return [pytest.param(rule, text, id=f"{rule.__name__}, {case}") for case, text in texts]


ALLOWED = [
    *_cases(
        grammar.dns1123_label,
        ("one letter", "a"),
        ("one digit", "7"),
        ("dashes inside", "a--b-1"),
        ("the longest", "a" * 63),
    ),
    *_cases(
        grammar.dns1123_subdomain,
        ("one part", "pool"),
        ("dots", "pool.v1.example"),
        ("a part over 63", "a" * 64),
        ("the longest", "a" * 253),
    ),
    *_cases(
        grammar.pool_name,
        ("dots", "pool.v1"),
        ("the longest", "a" * 63),
    ),
    *_cases(
        grammar.qualified_name,
        ("no prefix", "team"),
        ("capitals, dots, underscores", "Team_A.b-C"),
        ("prefix", "example.com/team"),
        ("the longest", "a" * 253 + "/" + "b" * 63),
    ),
    *_cases(
        grammar.label_value,
        ("empty", ""),
        ("mixed", "a.B_c-1"),
        ("the longest", "v" * 63),
    ),
    *_cases(grammar.taint_value, ("empty", ""), ("a word", "true")),
    *_cases(
        grammar.taint_effect,
        ("no schedule", "NoSchedule"),
        ("prefer not", "PreferNoSchedule"),
        ("evict", "NoExecute"),
    ),
]

REFUSED = [
    *_cases(
        grammar.dns1123_label,
        ("empty", ""),
        ("capital", "Pool"),
        ("dot", "a.b"),
        ("dash first", "-a"),
        ("dash last", "a-"),
        ("final newline", "a\n"),
        ("too long", "a" * 64),
    ),
    *_cases(
        grammar.pool_name,
        ("empty", ""),
        ("capital", "Pool"),
        ("one over 63", "a" * 64),
        ("one over 253", "a" * 254),
    ),
    *_cases(
        grammar.dns1123_subdomain,
        ("empty", ""),
        ("underscore", "my_pool"),
        ("capital", "Pool"),
        ("two dots", "a..b"),
        ("dot last", "a."),
        ("dot first", ".a"),
        ("dash before a dot", "a-.b"),
        ("final newline", "a\n"),
        ("not ASCII", "pööl"),
        ("digit of another script", "a٣"),
        ("too long", "a" * 254),
    ),
    *_cases(
        grammar.qualified_name,
        ("empty", ""),
        ("empty prefix", "/team"),
        ("empty name", "example.com/"),
        ("two slashes", "example.com/a/b"),
        ("capital in the prefix", "Example.com/a"),
        ("dash first", "-a"),
        ("space", "a b"),
        ("final newline", "a\n"),
        ("newline ends the prefix", "example.com\n/a"),
        ("name too long", "a" * 64),
        ("prefix too long", "a" * 254 + "/b"),
    ),
    *_cases(
        grammar.label_value,
        ("dash first", "-1"),
        ("dot last", "a."),
        ("slash", "a/b"),
        ("space", " "),
        ("final newline", "a\n"),
        ("too long", "v" * 64),
    ),
    *_cases(grammar.taint_value, ("plus", "a+b")),
    *_cases(
        grammar.taint_effect,
        ("empty", ""),
        ("other case", "noschedule"),
        ("final newline", "NoExecute\n"),
        ("endless", "x" * 100_000),
    ),
]


@pytest.mark.parametrize(("rule", "text"), ALLOWED)
def test_what_kubernetes_allows_has_no_reason(rule: Rule, text: str) -> None:
    assert rule(text) is None


@pytest.mark.parametrize(("rule", "text"), REFUSED)
def test_what_kubernetes_refuses_has_a_short_reason_citing_its_rule(rule: Rule, text: str) -> None:
    reason = rule(text)

    assert reason is not None
    assert re.search(r"\((RFC 1123|Kubernetes)", reason)
    assert len(reason) < 600


def test_a_reason_names_the_part_of_the_key_that_is_refused() -> None:
    reasons = [grammar.qualified_name(key) or "" for key in ("Bad_/fine", "fine/bad_")]

    assert reasons[0].startswith("key prefix 'Bad_' must be")
    assert reasons[1].startswith("key name 'bad_' must be")


@given(st.text(max_size=70))
def test_a_dns_label_is_also_a_subdomain_a_key_and_a_value(text: str) -> None:
    if grammar.dns1123_label(text) is None:
        assert grammar.dns1123_subdomain(text) is None
        assert grammar.qualified_name(text) is None
        assert grammar.label_value(text) is None


@given(st.from_regex(r"[a-z0-9.\-]{1,70}", fullmatch=True))
def test_a_subdomain_is_labels_joined_by_dots(text: str) -> None:
    parts_allowed = all(
        re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", part) for part in text.split(".")
    )

    assert (grammar.dns1123_subdomain(text) is None) == parts_allowed


@given(st.text(max_size=70), st.sampled_from(["\n", " ", "\t", "\r", "\x00", "\u2028"]))
def test_nothing_that_is_allowed_ends_in_white_space(text: str, tail: str) -> None:
    rules = (
        grammar.dns1123_label,
        grammar.dns1123_subdomain,
        grammar.qualified_name,
        grammar.label_value,
        grammar.taint_effect,
    )

    assert all(rule(text + tail) is not None for rule in rules)


@pytest.mark.parametrize(
    ("annotations", "allowed"),
    [
        pytest.param({}, True, id="none"),
        pytest.param({"k": "v" * (256 * 1024 - 1)}, True, id="exactly 256 KiB"),
        pytest.param({"k": "v" * (256 * 1024)}, False, id="one byte over"),
        pytest.param({"k": "é" * (128 * 1024)}, False, id="bytes count, not characters"),
        pytest.param({f"k{i}": "v" * 60_000 for i in range(5)}, False, id="only together"),
        pytest.param({"k": "\ud800"}, True, id="lone surrogate"),
    ],
)
def test_annotations_may_take_256_kib_together(annotations: dict[str, str], allowed: bool) -> None:
    assert (grammar.annotations_size(annotations) is None) is allowed


@pytest.mark.parametrize(
    ("key", "reserved"),
    [
        pytest.param("coreweave.cloud/x", True, id="the cloud domain"),
        pytest.param("coreweave.com/x", True, id="the com domain"),
        pytest.param("node.coreweave.cloud/state", True, id="subdomain"),
        pytest.param("a.b.coreweave.com/x", True, id="deep subdomain"),
        pytest.param("Node.CoreWeave.Cloud/state", True, id="capitals"),
        pytest.param("node.coreweave.cloud./state", True, id="final dot"),
        pytest.param("coreweave.com/", True, id="empty name"),
        pytest.param("cks.coreweave.cloud/system-critical", False, id="the one permitted key"),
        pytest.param("CKS.coreweave.cloud/system-critical", True, id="permitted key in capitals"),
        pytest.param("cks.coreweave.cloud/system-critical2", True, id="longer than permitted"),
        pytest.param("cks.coreweave.com/system-critical", True, id="permitted name elsewhere"),
        pytest.param("notcoreweave.cloud/x", False, id="domain that merely ends alike"),
        pytest.param("coreweave.cloud.example.com/x", False, id="domain that merely begins alike"),
        pytest.param("coreweave.cloud", False, id="a name, no prefix"),
        pytest.param("example.com/coreweave.cloud", False, id="in the name"),
        pytest.param("team", False, id="plain"),
        pytest.param("", False, id="empty"),
    ],
)
def test_the_platforms_namespaces_are_reserved(key: str, reserved: bool) -> None:
    assert grammar.reserved_namespace(key) is reserved


@given(
    st.lists(st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True), max_size=3),
    st.sampled_from(["coreweave.cloud", "coreweave.com"]),
    st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True),
)
def test_every_subdomain_is_reserved_in_any_case(parts: list[str], domain: str, name: str) -> None:
    prefix = ".".join([*parts, domain])

    assert all(
        grammar.reserved_namespace(f"{spelling}/{name}")
        for spelling in (prefix, prefix.upper(), prefix.title(), f"{prefix}.")
    )
