"""JSONPath templates, by the examples of https://kubernetes.io/docs/reference/kubectl/jsonpath/."""

import pytest

from nodepool.cli.jsonpath import JsonPathError, render_template
from nodepool.cli.jsonpath_parser import parse_path, parse_template

# The input of that page.
EXAMPLE: dict[str, object] = {
    "kind": "List",
    "items": [
        {
            "kind": "None",
            "metadata": {"name": "127.0.0.1", "labels": {"kubernetes.io/hostname": "127.0.0.1"}},
            "status": {
                "capacity": {"cpu": "4"},
                "addresses": [{"type": "LegacyHostIP", "address": "127.0.0.1"}],
            },
        },
        {
            "kind": "None",
            "metadata": {"name": "127.0.0.2"},
            "status": {
                "capacity": {"cpu": "8"},
                "addresses": [
                    {"type": "LegacyHostIP", "address": "127.0.0.2"},
                    {"type": "another", "address": "127.0.0.3"},
                ],
            },
        },
    ],
    "users": [
        {"name": "myself", "user": {}},
        {"name": "e2e", "user": {"username": "admin", "password": "secret"}},
    ],
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("kind is {.kind}", "kind is List"),
        ("{.kind}", "List"),
        ("{['kind']}", "List"),
        ("{['kind.type']}", ""),
        ("{..name}", "127.0.0.1 127.0.0.2 myself e2e"),
        ("{.items[*].metadata.name}", "127.0.0.1 127.0.0.2"),
        ("{.users[0].name}", "myself"),
        ("{.users[-1].name}", "e2e"),
        ("{.users[-1:].name}", "e2e"),
        ("{.users[0:1].name}", "myself"),
        ("{.users[0:2:1].name}", "myself e2e"),
        ("{.users[::2].name}", "myself"),
        (
            "{.items[*]['metadata.name', 'status.capacity']}",
            '127.0.0.1 127.0.0.2 {"cpu":"4"} {"cpu":"8"}',
        ),
        ("{.items[*]['kind','metadata']['name']}", "127.0.0.1 127.0.0.2"),
        ("{.items[0,1].metadata.name}", "127.0.0.1 127.0.0.2"),
        ('{.users[?(@.name=="e2e")].user.password}', "secret"),
        ("{.users[?(@.name=='e2e')].user.password}", "secret"),
        ("{.users[?(@.name!='e2e')].name}", "myself"),
        ("{.users[?(@.user.password)].name}", "e2e"),
        ("{.users[?( @.name > 'm' )].name}", "myself"),
        (
            "{range .items[*]}[{.metadata.name}, {.status.capacity}] {end}",
            '[127.0.0.1, {"cpu":"4"}] [127.0.0.2, {"cpu":"8"}] ',
        ),
        (
            '{range .items[*]}{.metadata.name}{"\\t"}{end}',
            "127.0.0.1\t127.0.0.2\t",
        ),
        ("{.items[0].metadata.labels.kubernetes\\.io/hostname}", "127.0.0.1"),
        ("{.items[0].metadata.labels['kubernetes.io/hostname']}", "127.0.0.1"),
        ("{.items[0].metadata.labels['kubernetes\\.io/hostname']}", "127.0.0.1"),
        (
            "{range .items[*]}{range .status.addresses[*]}{.address}{'\\n'}{end}{end}",
            "127.0.0.1\n127.0.0.2\n127.0.0.3\n",
        ),
        ("{range .users[*]}{$.kind}-{@.name} {end}", "List-myself List-e2e "),
        ("{.users[*].user}", '{} {"password":"secret","username":"admin"}'),
        ("{.nosuch.field}", ""),
        ("{@.kind}{$.kind}", "ListList"),
        (".kind", "List"),
        ("plain text", "plain text"),
        ("", ""),
    ],
)
def test_the_examples_of_the_documentation_print_what_kubectl_prints(
    template: str, text: str
) -> None:
    assert render_template(parse_template(template), EXAMPLE) == text


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{.n}", "3"),
        ("{.f}", "1.5"),
        ("{.yes} {.no}", "true false"),
        ("{.nothing}", ""),
        ("{.list}", '[1,"é"]'),
        ("{.list[*]}", "1 é"),
        ("{.*}", '3 1.5 true false  [1,"é"]'),
        ("{.all[?(@.n==3)].name} {.all[?(@.n>3)].name}", " "),
    ],
)
def test_values_are_printed_as_in_json_and_texts_bare(template: str, text: str) -> None:
    value = {"n": 3, "f": 1.5, "yes": True, "no": False, "nothing": None, "list": [1, "é"]}

    assert render_template(parse_template(template), value) == text


@pytest.mark.parametrize(
    ("test", "chosen"),
    [
        ("@.n==3", "a"),
        ("@.n!=3", "b c"),
        ("@.n>3", "b"),
        ("@.n>=3", "a b"),
        ("@.n<4", "a"),
        ("@.n<=3.0", "a"),
        ("@.on==true", "a"),
        ("@.n==true", ""),
        ("@.n==@.m", "b"),
        ("@.n > 'x'", "c"),
    ],
)
def test_a_filter_compares_values_of_one_type(test: str, chosen: str) -> None:
    value = {
        "all": [
            {"name": "a", "n": 3, "on": True},
            {"name": "b", "n": 4, "m": 4},
            {"name": "c", "n": "y"},
        ]
    }

    assert render_template(parse_template(f"{{.all[?({test})].name}}"), value) == chosen


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{.a", "'{.a': its end at character 4 is not the '}' that is expected here"),
        ("{.a[}", "'{.a[}': '}' at character 5 is not an index, a 'name', * or ?(...)"),
        ("{.a[0}", "'{.a[0}': '}' at character 6 is not the ']' that is expected here"),
        ("{.a[1:2:0]}", "'{.a[1:2:0]}': ']}' at character 10 ends no slice"),
        ("{'text}", """\"{'text}": "'text}" at character 2 has no closing '"""),
        ("{range .a}x", "'{range .a}x': its end at character 12 comes before the {end}"),
        ("x{end}", "'x{end}': its end at character 7 follows an {end} without a {range}"),
        ("{}", "'{}': '}' at character 2 is not a path; write it as .metadata.name"),
        ("{.a[?(@.b=='x' && @.c)]}", "at character 16 is not supported in a filter; use ==,"),
        ("{.a[?(@.b=~'x')]}", "is not supported in a filter; use ==,"),
        ("{.a..}", "at character 6 is not the name of a field"),
        ("{a}", "'{a}': 'a}' at character 2 is not a path; write it as .metadata.name"),
    ],
)
def test_an_error_names_the_place(template: str, message: str) -> None:
    with pytest.raises(JsonPathError) as caught:
        parse_template(template)

    assert message in str(caught.value)


def test_an_index_beyond_the_end_of_a_list_is_an_error() -> None:
    with pytest.raises(JsonPathError, match="index 5 is out of bounds: the list has 2 elements"):
        render_template(parse_template("{.users[5].name}"), EXAMPLE)


@pytest.mark.parametrize("text", [".kind", "{.kind}", "kind", "$.kind", "{ .kind }", "['kind']"])
def test_one_path_may_be_written_with_and_without_braces(text: str) -> None:
    assert parse_path(text).find(EXAMPLE) == ["List"]


@pytest.mark.parametrize("text", ["", ".", "{}", ".a}", ".a b", "{.a}{.b}"])
def test_what_is_not_one_path_is_an_error(text: str) -> None:
    with pytest.raises(JsonPathError):
        parse_path(text)
