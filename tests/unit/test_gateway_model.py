"""The read model in the memory of the gateway: objects, pages, changes and deletions."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from gateway import model as gateway_model
from gateway.model import GRAVE_TIME, Held, ReadModel

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def filled(*writes: tuple[int, str, str]) -> ReadModel:
    """A model after these writes of Nodes of acme: revision, key and content."""
    model = ReadModel()
    model.begin("nodes", "e")
    for revision, key, content in writes:
        model.take("nodes", "acme", key, Held(revision, revision, content.encode()), NOW)
    return model


def page(
    model: ReadModel, prefix: str = "", after: str = "", **bounds: int
) -> tuple[list[str], str]:
    """The contents of a page, and where the next one begins."""
    limits = {"limit": 10, "size": 1_000, **bounds}
    found = model.page("nodes", "acme", prefix, after, None, **limits)
    return [held.content.decode() for held in found.objects], found.end


def test_pages_follow_each_other_in_the_order_of_keys() -> None:
    # given objects of two clusters
    model = filled((1, "p.c", "C"), (2, "p.a", "A"), (3, "q.a", "Q"), (4, "p.b", "B"))

    # when they are listed, then a page ends at its limit, and the next one continues there
    assert page(model, "p.", limit=2) == (["A", "B"], "p.b")
    assert page(model, "p.", "p.b") == (["C"], "")
    assert page(model) == (["A", "B", "C", "Q"], "")
    assert page(model, size=4) == (["A", "B"], "p.b")
    assert page(model, size=0) == (["A"], "p.a")
    assert page(model, "p.", "q.z") == ([], "")


def test_a_page_compares_a_bounded_number_of_objects_with_a_selector() -> None:
    most = gateway_model.SCAN_MAX
    model = filled(*((n, f"p.{n:05}", "x") for n in range(1, most + 2)))

    found = model.page("nodes", "acme", "", "", lambda _: False, limit=1, size=1)

    assert (list(found.objects), found.end) == ([], f"p.{most:05}")


def test_an_organisation_has_only_its_own_objects() -> None:
    model = filled((1, "p.a", "A"))

    assert model.get("nodes", "umbra", "p.a") is None
    assert list(model.contents("nodes", "umbra")) == []
    assert model.page("nodes", "umbra", "", "", None, limit=9, size=9).objects == []
    assert model.changes("nodes", "umbra", "", 0, None, limit=9, size=9).items == []


def test_changes_since_a_revision_come_once_and_in_order() -> None:
    # given an object that has changed twice, and one that is deleted
    model = filled((1, "p.a", "A"), (2, "p.b", "B"), (3, "p.a", "A2"), (4, "p.b", ""))

    # when one asks what has changed
    def since(revision: int, limit: int = 9) -> tuple[list[tuple[str, bytes]], int]:
        found = model.changes("nodes", "acme", "p.", revision, None, limit=limit, size=1_000)
        return [(each.key, each.held.content) for each in found.items], found.revision

    # then each object comes as it is now, oldest change first
    assert since(0) == ([("p.a", b"A2"), ("p.b", b"")], 4)
    assert since(3) == ([("p.b", b"")], 4)
    assert since(0, limit=1) == ([("p.a", b"A2")], 3)
    assert since(4) == ([], 4)


def test_an_object_that_is_not_selected_any_more_comes_as_deleted() -> None:
    model = filled((1, "p.a", "other"))

    found = model.changes("nodes", "acme", "", 0, lambda content: content == b"A", limit=9, size=9)

    assert [each.held.content for each in found.items] == [b""]


def test_a_deletion_is_forgotten_after_an_hour_and_older_revisions_with_it() -> None:
    # given a deletion
    model = filled((1, "p.a", "A"), (2, "p.a", ""))
    assert model.rooms["nodes"].floor == 0

    # when something is written an hour later
    model.take("nodes", "acme", "p.b", Held(3, 3, b"B"), NOW + GRAVE_TIME + timedelta(seconds=1))

    # then the deletion is forgotten, and a watch from before it has to begin again
    assert model.version("nodes", "acme", "p.a") is None
    assert model.rooms["nodes"].floor == 2


def test_nothing_is_kept_of_an_owner_whose_last_deletion_is_forgotten() -> None:
    # given an organisation whose only Node was deleted
    model = filled((1, "p.a", "A"), (2, "p.a", ""))

    # when the deletion is so old that the bus has forgotten it
    later = NOW + GRAVE_TIME + timedelta(seconds=1)
    model.take("nodes", "umbra", "p.b", Held(3, 3, b"B"), later)

    # then the model knows only the other organisation
    assert list(model.rooms["nodes"].shelves) == ["umbra"]

    # and the organisation can have Nodes again
    model.take("nodes", "acme", "p.a", Held(4, 4, b"A"), later)
    assert model.get("nodes", "acme", "p.a") == Held(4, 4, b"A")


def test_after_a_start_it_is_not_known_what_was_deleted_long_ago() -> None:
    model = filled((5, "p.a", "A"), (9, "p.b", "B"))
    old = NOW - timedelta(hours=2)

    model.note_beginning("nodes", [(5, old), (9, NOW)], 12, NOW)

    assert (model.rooms["nodes"].floor, model.rooms["nodes"].revision) == (8, 12)
    model.note_beginning("nodes", [(5, old), (9, old)], 12, NOW)
    assert model.rooms["nodes"].floor == 12


def test_objects_are_found_by_their_group_until_they_leave_it() -> None:
    model = ReadModel()
    for revision, key, content, group in (
        (1, "p.a", b"A", "train"),
        (2, "q.a", b"Q", "train"),
        (3, "p.b", b"B", "train"),
        (4, "p.b", b"B", "infer"),
        (5, "p.a", b"", ""),
    ):
        held = Held(revision, revision, content, group)
        model.take("nodes", "acme", key, held, NOW)

    assert list(model.grouped("nodes", "acme", "train", "p.")) == []
    assert list(model.grouped("nodes", "acme", "train")) == [b"Q"]
    assert list(model.grouped("nodes", "acme", "infer", "p.")) == [b"B"]


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["", "1", "2"])), max_size=40))
def test_following_the_changes_shows_what_a_list_shows(writes: list[tuple[str, str]]) -> None:
    # given a reader that lists at any moment, and follows the changes with small pages
    model, seen, revision = filled(), dict[str, bytes](), 0
    for number, (key, content) in enumerate(writes, 1):
        model.take("nodes", "acme", key, Held(number, number, content.encode()), NOW)
        found = model.changes("nodes", "acme", "", revision, None, limit=1, size=99)
        seen |= {each.key: each.held.content for each in found.items}
        revision = found.revision

    # when it has read all changes
    while revision < len(writes):
        found = model.changes("nodes", "acme", "", revision, None, limit=1, size=99)
        seen |= {each.key: each.held.content for each in found.items}
        revision = found.revision

    # then it knows the same objects
    listed = dict(model.contents("nodes", "acme"))
    assert {key: content for key, content in seen.items() if content} == listed
