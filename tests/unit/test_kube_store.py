"""What is known of objects: lists, events and own writes put together."""

from nodepool.kube.store import Kept, Store

Change = tuple[str, str | None, str | None]


class Kind:
    """A store whose changes are noted."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.store: Store[str] = Store(lambda *change: self.changes.append(change))

    def listed(self, version: int, **items: Kept[str]) -> None:
        """A list that was asked for and came."""
        self.store.begin_list()
        self.store.replace(items, version)

    @property
    def items(self) -> dict[str, str]:
        """All that is known."""
        return dict(self.store.items())


def one(version: int, value: str = "one", uid: str = "u") -> Kept[str]:
    return Kept(uid, version, value)


def test_a_list_is_what_there_is() -> None:
    kind = Kind()
    kind.listed(3, a=one(1), b=one(2, uid="v"))
    kind.listed(5, b=one(4, "two", uid="v"), c=one(5, uid="w"))

    assert kind.items == {"b": "two", "c": "one"}
    assert kind.changes == [
        ("a", None, "one"),
        ("b", None, "one"),
        ("a", "one", None),
        ("b", "one", "two"),
        ("c", None, "one"),
    ]


def test_an_own_write_is_seen_at_once_and_an_older_event_does_not_undo_it() -> None:
    kind = Kind()
    kind.listed(3, a=one(1))

    kind.store.put("a", one(7, "written"))
    kind.store.apply("a", "u", 5, one(5, "older"))
    kind.store.apply("a", "u", 7, one(7, "written"))
    kind.store.apply("a", "u", 8, one(8, "newer"))

    assert kind.changes[1:] == [("a", "one", "written"), ("a", "written", "newer")]


def test_an_own_deletion_is_seen_at_once_and_an_older_event_does_not_bring_it_back() -> None:
    kind = Kind()
    kind.listed(3, a=one(1))

    kind.store.remove("a", "u")
    kind.store.apply("a", "u", 5, one(5, "older"))
    kind.store.apply("a", "u", 6, None)

    assert kind.changes == [("a", None, "one"), ("a", "one", None)]


def test_a_reply_does_not_bring_back_what_a_watch_said_is_deleted_since() -> None:
    kind = Kind()
    kind.listed(3, a=one(1))

    kind.store.apply("a", "u", 5, one(5, "ending"))
    kind.store.apply("a", "u", 6, None)
    kind.store.put("a", one(5, "ending"))

    assert kind.items == {}


def test_the_late_news_of_a_deletion_leaves_the_next_object_of_that_name() -> None:
    kind = Kind()
    kind.listed(3, a=one(1))
    kind.store.remove("a", "u")
    kind.store.put("a", one(9, "next", uid="v"))

    kind.store.apply("a", "u", 6, None)

    assert kind.items == {"a": "next"}


def test_what_was_written_while_a_list_was_on_its_way_stays() -> None:
    kind = Kind()
    kind.listed(3, a=one(1), b=one(2, uid="v"))

    kind.store.begin_list()
    kind.store.put("a", one(7, "written"))
    kind.store.put("c", one(8, "made", uid="w"))
    kind.store.remove("b", "v")
    kind.store.replace({"a": one(1), "b": one(2, uid="v")}, 5)

    assert kind.items == {"a": "written", "c": "made"}


def test_what_a_list_lacks_that_was_written_before_it_is_gone() -> None:
    kind = Kind()
    kind.listed(3)
    kind.store.put("a", one(4))

    kind.listed(6)

    assert kind.items == {}


def test_nothing_stays_of_a_cluster_that_was_restored_from_a_backup() -> None:
    kind = Kind()
    kind.listed(30, a=one(20, "later"), b=one(25, uid="v"))
    kind.store.remove("b", "v")

    kind.store.begin_list()
    kind.store.put("a", one(31, "written"))
    kind.store.replace({"a": one(10, "earlier"), "b": one(12, "back", uid="v")}, 15)

    assert kind.items == {"a": "earlier", "b": "back"}


def test_an_event_of_what_is_known_already_changes_nothing() -> None:
    kind = Kind()
    kind.listed(3, a=one(1))

    kind.store.apply("a", "u", 1, one(1))
    kind.listed(4, a=one(1))

    assert kind.changes == [("a", None, "one")]


def test_a_list_of_some_adds_what_has_not_been_seen_and_takes_nothing_away() -> None:
    kind = Kind()
    kind.listed(3, a=one(1), b=one(2, uid="v"))
    kind.store.remove("b", "v")

    kind.store.add({"b": one(2, uid="v"), "c": one(9, "late", uid="w")}, 10)

    assert kind.items == {"a": "one", "c": "late"}


def test_a_list_of_some_that_is_older_than_what_was_seen_adds_nothing() -> None:
    kind = Kind()
    kind.listed(3)
    kind.store.apply("a", "u", 9, None)

    kind.store.add({"a": one(5)}, 8)

    assert kind.items == {}
