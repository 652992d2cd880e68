"""The page of operators: what the doctor finds, what needs a person first."""

from console.view.system import Found, build_system

WELL = Found("service quota", "ok", "1 replica, committed to 7", "")
NOTED = Found("service fleet", "note", "not at work", "start it")
WRONG = Found("service capacity", "problem", "no replica reads the log", "start it")


def test_what_needs_a_person_comes_first_and_is_in_the_title() -> None:
    page = build_system([WELL, NOTED, WRONG], 2)

    assert page.title == "1 check needs a person; 2 dead letters"
    ((title, checks),) = page.groups
    assert title == "Services"
    assert [(each.name, each.word.look) for each in checks] == [
        ("capacity", "act"),
        ("fleet", "wait"),
        ("quota", "ok"),
    ]


def test_checks_are_grouped_by_what_they_are_about() -> None:
    names = ("connection", "log", "stream KV_nodes", "trimming", "service quota", "JetStream")

    page = build_system([Found(name, "ok", "", "") for name in names], 0)

    assert page.title == "All 6 checks pass"
    assert [(title, [each.name for each in checks]) for title, checks in page.groups] == [
        ("Services", ["quota"]),
        ("Log, archive and floor", ["log", "stream KV_nodes", "trimming", "JetStream"]),
        ("Bus", ["connection"]),
    ]


def test_a_note_is_no_reason_to_say_that_all_is_well() -> None:
    title = build_system([WELL, NOTED], 0).title

    assert title == "Nothing needs a person; 1 note"


def test_before_the_first_look_nothing_is_said_to_be_well() -> None:
    assert build_system([], 0).title == "Checks are running"
