"""Editing a NodePool in the console: by its form, as YAML, and two users at once."""

import html
import re
from collections.abc import Mapping
from pathlib import Path

from bus.consoles import Answer, Browser, World, console_at_work
from bus.test_console import TRAIN, apply, read_until
from nodepool.contract.documents import field
from support.constants import A100, H100

EDIT = f"{TRAIN}/edit"
FIELD = re.compile(r'<input [^>]*?\bname="([^"]+)"[^>]*?\bvalue="([^"]*)"')
AREA = re.compile(r'<textarea id="yaml".*?>\n(.*?)</textarea>', re.DOTALL)


def fields_in(page: str) -> dict[str, str]:
    """The fields of a form, as a browser sends them."""
    form = page.partition('id="edit"')[2]
    found = {name: html.unescape(text) for name, text in FIELD.findall(form)}
    found["how"] = "auto" if re.search(r'value="auto" checked', form) else "fixed"
    if area := AREA.search(form):
        found["yaml"] = html.unescape(area[1])
    return found


async def send(browser: Browser, page: Answer, do: str, **changes: str) -> Answer:
    """Send the form of a page after these changes."""
    return await browser.post(EDIT, {**fields_in(page.text), **changes, "do": do})


async def spec_of(world: World) -> Mapping[str, object]:
    """The spec of the NodePool as it is stored."""
    await world.operator.nodepools.catch_up()
    spec = field(await world.operator.nodepools.get("train"), "spec")
    assert isinstance(spec, Mapping)
    return spec


async def test_a_nodepool_is_edited_by_its_form_and_as_yaml_after_the_verdict_of_the_server(
    tmp_path: Path,
) -> None:
    async with console_at_work(tmp_path) as world:
        await apply(world.operator, "train", H100, 2, "kept")
        editor = await world.browser("editor")
        await read_until(editor, TRAIN, "At target", "/edit")
        opened = await editor.get(EDIT)

        # given the form, then it says how far the quota goes, as the forms to scale and create do
        assert "The quota of 8 has room for 8, as no other NodePool uses it." in opened.text

        # when a field is wrong, then it says so, and what was typed stays
        wrong = await send(editor, opened, "save", target="x", labels="team")
        assert wrong.status == 422
        assert 'id="target-fault"' in wrong.text
        assert 'id="labels-fault"' in wrong.text
        assert 'value="x"' in wrong.text

        # when it is checked, then the server says what it would do, and nothing changes
        checked = await send(editor, opened, "check", target="1", labels="team=red")
        assert "Would be accepted" in checked.text
        assert '<span class="del">-   targetNodes: 2</span>' in checked.text
        assert '<span class="add">+   targetNodes: 1</span>' in checked.text
        assert (await spec_of(world))["targetNodes"] == 2

        # and a target above the quota would wait, which the form says with the highest that fits
        high = await send(editor, opened, "check", target="9")
        assert "Would wait for quota" in high.text
        assert "A target of 8 would fit." in high.text

        # and without a script, a button shows the changes without asking the server
        shown = await send(editor, opened, "show", target="1", taints="x")
        assert '<span class="add">+   targetNodes: 1</span>' in shown.text
        assert (shown.status, "says the server" in shown.text) == (200, False)

        # and what the server would refuse is said beside the field, of all fields at once
        refused = await send(
            editor, opened, "check", how="auto", least="5", most="4", taints="a=b:Never"
        )
        assert (refused.status, "Would be accepted" in refused.text) == (422, False)
        assert 'id="taints-fault"' in refused.text
        assert 'id="most-fault"' in refused.text
        bound = await send(editor, opened, "check", how="auto", least="0", most="1")
        assert (bound.status, "Would be refused" in bound.text) == (422, True)
        assert 'id="most-fault"' in bound.text

        # when it goes on as YAML, then what was typed so far is there, without a conflict of names
        yaml = await send(editor, checked, "yaml")
        text = fields_in(yaml.text)["yaml"]
        assert "targetNodes: 1" in text
        assert "team: red" in text
        broken = await send(editor, yaml, "save", yaml="spec: [")
        assert (broken.status, "yaml-fault" in broken.text) == (422, True)
        other = await send(editor, yaml, "save", yaml=text.replace("name: train", "name: other"))
        assert "a name cannot be changed" in other.text
        kind = await send(editor, yaml, "check", yaml=text.replace(H100, A100))
        assert "InstanceType cannot be changed" in kind.text

        # and when it is saved, then it is stored as it was typed, and the rest as it was
        saved = await send(editor, yaml, "save", yaml=f"{text}  nodeAnnotations: {{by: hand}}\n")
        assert (saved.status, saved.headers["location"]) == (303, TRAIN)
        spec = await spec_of(world)
        assert (spec["targetNodes"], spec["nodeLabels"]) == (1, {"team": "red"})
        assert spec["nodeAnnotations"] == {"by": "hand"}
        stored = await world.operator.nodepools.get("train")
        assert field(stored, "metadata", "annotations") == {"note": "kept"}
        assert "train is saved." in (await editor.get(TRAIN)).text

        # and a form that another program made, with a manifest nested too deep, does no harm
        deep = '{"metadata": {"name": "train"}, "spec": ' + '{"a": ' * 900 + "1" + "}" * 901
        assert (await send(editor, opened, "check", opened=deep, draft=deep)).status == 200

        # and a viewer may not edit
        viewer = await world.browser("viewer")
        assert (await viewer.get(EDIT)).status == 403


async def test_each_form_has_its_action_first_so_that_enter_does_the_same_in_all(
    tmp_path: Path,
) -> None:
    async with console_at_work(tmp_path) as world:
        await apply(world.operator, "train", H100, 2)
        editor = await world.browser("editor")
        await read_until(editor, TRAIN, "At target", "/edit")
        for path, action in (("/create", "create"), (f"{TRAIN}/scale", "scale"), (EDIT, "save")):
            page = (await editor.get(path)).text
            assert re.findall('name="do" value="([a-z]+)"', page)[:2] == [action, "check"], path


async def test_of_two_users_who_edit_at_once_neither_loses_what_the_other_typed(
    tmp_path: Path,
) -> None:
    async with console_at_work(tmp_path) as world:
        await apply(world.operator, "train", H100, 2)
        one, two = await world.browser("editor"), await world.browser("owner")
        for browser in (one, two):
            await read_until(browser, TRAIN, "At target")
        first, second = await one.get(EDIT), await two.get(EDIT)

        # given the first one has saved, when the second one changes something else, then both count
        assert (await send(one, first, "save", target="3")).status == 303
        await read_until(two, TRAIN, "</b> <small>of 3</small>")
        assert (await send(two, second, "save", labels="team=red")).status == 303
        said = (await two.get(TRAIN)).text
        assert "Fields that another user changed meanwhile are kept: spec.targetNodes." in said
        spec = await spec_of(world)
        assert (spec["targetNodes"], spec["nodeLabels"]) == (3, {"team": "red"})

        # when it changes the same field, then nothing is stored, and both values are shown
        clash = await send(two, second, "save", target="1")
        assert "Not saved: another user changed the same field" in clash.text
        shown = clash.text.partition("Changed by another user meanwhile")[2]
        assert '<td class="m">2</td><td class="m">3</td><td><b class="m">1</b></td>' in shown
        assert fields_in(clash.text)["target"] == "1"
        assert (await spec_of(world))["targetNodes"] == 3

        # and when it is saved again, then what was typed counts, and the rest stays
        assert (await send(two, clash, "save")).status == 303
        spec = await spec_of(world)
        assert (spec["targetNodes"], spec["nodeLabels"]) == (1, {"team": "red"})

        # when the session ends in between, then what was typed is there after signing in again
        await read_until(one, TRAIN, "</b> <small>of 1</small>")
        opened = await one.get(EDIT)
        await one.post("/logout", {})
        ended = await send(one, opened, "save", labels="team=blue")
        assert ended.status == 401
        kept = {name: html.unescape(text) for name, text in FIELD.findall(ended.text)}
        again = await world.browser("editor")
        stale = await again.post(EDIT, {**kept, "form_token": ""})
        assert "made in an earlier session" in stale.text
        assert fields_in(stale.text)["labels"] == "team=blue"

        # and when somebody deletes it, then what was typed is still shown
        await world.operator.nodepools.delete("train")
        await world.operator.nodepools.wait_until_gone("train")
        await read_until(again, "/nodepools", "No NodePools yet")
        gone = await send(again, stale, "save", labels="team=green")
        assert "another user deleted this NodePool" in gone.text
        assert fields_in(gone.text)["labels"] == "team=green"
