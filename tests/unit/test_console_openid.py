"""The settings of the OpenID provider of the console, and who is which user."""

from pathlib import Path

import pytest

pytest.importorskip("authlib", reason="needs the packages of nodepool[console]")

from console.host.settings import read_console
from console.view.claims import NAME_MAX, Unmapped, find_user, name_person
from nodepool.host.settings import SettingsError

RIGHT = """\
issuer: https://login.example.com
clientID: nodepool
users: {gpu-team: acme/editor, platform: operator}
"""
REQUIRED = {"NODEPOOL_CONSOLE_KEYS": "keys", "NODEPOOL_CONSOLE_LINKS": "links"}


def environment_of(folder: Path, text: str, **other: str) -> dict[str, str]:
    """The environment of a console with these settings of the provider."""
    file = folder / "oidc.yaml"
    file.write_text(text)
    return {**REQUIRED, "NODEPOOL_CONSOLE_OIDC_FILE": str(file), **other}


def test_three_settings_are_enough_and_the_rest_has_defaults(tmp_path: Path) -> None:
    settings = read_console(environment_of(tmp_path, RIGHT))

    assert settings.openid is not None
    assert settings.openid.claim == "groups"
    assert "openid" in settings.openid.scopes
    assert settings.list_settings()["oidc_issuer"] == "https://login.example.com"
    assert read_console(REQUIRED).openid is None


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[", "is no YAML"),
        ("", "the file"),
        (RIGHT.replace("clientID", "clientId"), "clientID: Field required"),
        (RIGHT + "secret: x\n", "secret: Extra inputs"),
        (RIGHT.replace("https:", "http:"), "issuer: must begin with https://"),
        (RIGHT.replace("acme/editor", "editor"), "users.gpu-team: must be ORGANISATION/USER"),
        (RIGHT.replace("acme/editor", "acme/a/b"), "users.gpu-team: must be ORGANISATION/USER"),
        (RIGHT.replace("{gpu-team: acme/editor, platform: operator}", "{}"), "users: "),
        (RIGHT + "scopes: [email]\n", "scopes: must have openid"),
        (RIGHT + "sessionMinutes: 0\n", "sessionMinutes: "),
        (RIGHT + "clientSecretFile: /none\n", "a file cannot be used"),
        (RIGHT + "caFile: /none\n", "a file cannot be used"),
        (RIGHT + f"clientID: {'a' * 300_000}\n", "has over 262144 bytes"),
    ],
)
def test_a_wrong_setting_of_the_provider_is_named(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(SettingsError, match="NODEPOOL_CONSOLE_OIDC_FILE") as error:
        read_console(environment_of(tmp_path, text))
    assert named in str(error.value)


@pytest.mark.parametrize(
    "url", ["http://console.example.com", "https://a/b", "https://A.example", "console", "https://"]
)
def test_an_address_for_other_machines_is_encrypted_and_has_no_path(
    tmp_path: Path, url: str
) -> None:
    with pytest.raises(SettingsError, match="NODEPOOL_CONSOLE_URL is"):
        read_console(environment_of(tmp_path, RIGHT, NODEPOOL_CONSOLE_URL=url))
    with pytest.raises(SettingsError, match="NODEPOOL_CONSOLE_URL needs"):
        read_console({**REQUIRED, "NODEPOOL_CONSOLE_URL": "https://console.example.com"})


def test_the_first_entry_that_is_a_value_of_the_claim_decides() -> None:
    users = {"one": "acme/owner", "two": "acme/viewer"}

    assert find_user({"groups": ["two", "one"]}, "groups", users) == "acme/owner"
    assert find_user({"groups": "two"}, "groups", users) == "acme/viewer"
    wrong: list[object] = [None, [], [1], ["three"], {"one": True}]
    for given in [{}, *({"groups": each} for each in wrong)]:
        with pytest.raises(Unmapped, match="The claim groups"):
            find_user(given, "groups", users)


def test_a_person_has_one_plain_name_whatever_the_provider_says() -> None:
    assert name_person({"sub": "5", "email": "a@b.c", "email_verified": True}) == "a@b.c"
    assert name_person({"sub": "5", "email": "a@b.c"}) == "5"
    assert name_person({"sub": "a/b\n<c>" + "d" * 200}) == "a_b__c_" + "d" * (NAME_MAX - 7)
