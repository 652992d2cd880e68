"""Frames of open pages: what a browser gets that shows an earlier one."""

from console.host.frames import Frame, make_frame


def row(name: str, text: str, time: str = "1 s") -> str:
    """A row of a table, with a time in it."""
    shown = f'{text} <time datetime="2026-11-23T10:00:00Z" data-ago>{time}</time>'
    return f'<tr role="row" id="{name}" data-row data-v="1">\n<td>{shown}</td></tr>'


def frame(*rows: str, title: str = "two") -> Frame:
    """A page with a title and rows."""
    return make_frame(7, f"<h1>{title}</h1>\n<table>{''.join(rows)}</table>")


STAYS = b'<tr id="a" data-row data-same></tr>'


def test_the_first_frame_is_the_whole_page_as_an_event_with_the_position_of_the_log() -> None:
    content = frame(row("a", "one")).whole().decode()

    assert content.startswith("id: 7\ndata: <h1>two</h1>\ndata: <table><tr role")
    assert content.endswith("</table>\n\n")


def test_a_page_that_differs_in_its_times_alone_is_not_sent_again() -> None:
    before = frame(row("a", "one"), row("b", "two"))

    assert frame(row("a", "one", "2 s"), row("b", "two", "9 s")).after(before) is None


def test_of_rows_only_those_that_differ_or_are_new_have_their_content() -> None:
    before = frame(row("a", "one"), row("b", "two"))

    content = frame(row("a", "one", "2 s"), row("b", "TWO"), row("c", "new")).after(before)

    assert content is not None
    assert STAYS in content
    assert b"one" not in content
    assert b"TWO" in content
    assert b"new" in content


def test_rows_in_another_order_a_row_less_and_another_title_are_sent() -> None:
    one, two = row("a", "one"), row("b", "two")
    before = frame(one, two)

    assert frame(two, one).after(before) is not None
    assert frame(one).after(before) is not None
    titled = frame(one, two, title="three").after(before)
    assert titled is not None
    assert STAYS in titled


def test_rows_that_share_an_id_are_sent_whole() -> None:
    before = frame(row("a", "one"), row("a", "two"))

    content = frame(row("a", "one"), row("a", "TWO")).after(before)

    assert content is not None
    assert STAYS not in content


def part(name: str, *words: str) -> str:
    """A part of a grid, with a cell for each word."""
    cells = "".join(f'<a class="cell" id="cell-{each}"><span>{each}</span></a>' for each in words)
    return f'<div class="part" id="{name}" data-part>{cells}</div>'


def test_of_a_grid_only_the_parts_that_differ_are_sent() -> None:
    before = make_frame(7, f"<div>{part('a', 'one')}\n{part('b', 'two', 'three')}</div>")

    after = make_frame(8, f"<div>{part('a', 'one')}\n{part('b', 'two', 'FOUR')}</div>")
    content = (after.after(before) or b"").decode()

    assert content.startswith(
        'id: 8\ndata: <div><div id="a" data-part data-same></div>\ndata: <div class="part" id="b"'
    )
    assert "two" in content
    assert "FOUR" in content
    assert "one" not in content
