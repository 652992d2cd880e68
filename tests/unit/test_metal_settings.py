"""The settings of the process for real machines."""

from pathlib import Path

import pytest

from metal.host.settings import read_metal
from metal.inventory.addresses import BootNetwork
from nodepool.host.settings import SettingsError

KEY = "k" * 32


def environment(folder: Path, **others: str) -> dict[str, str]:
    """Settings with reports, and others in their place."""
    key = folder / "key"
    key.write_text(KEY)
    key.chmod(0o600)
    given = {
        "INVENTORY": "/etc/inventory.yaml",
        "METAL_REPORT_PORT": "9500",
        "METAL_REPORT_URL": "https://metal.example/",
        "METAL_REPORT_KEY_FILE": str(key),
        **others,
    }
    return {f"NODEPOOL_{name}": value for name, value in given.items()}


def test_the_settings_are_read_and_one_controller_gets_one_call_at_a_time(tmp_path: Path) -> None:
    settings = read_metal(environment(tmp_path, METAL_POLL_SECONDS="5"))

    assert (settings.poll_s, settings.limits.per_controller) == (5, 1)
    assert (settings.report_url, settings.report_key) == ("https://metal.example", KEY)


@pytest.mark.parametrize(("value", "is_trusted"), [("", False), ("off", False), ("on", True)])
def test_the_network_of_boots_is_trusted_only_if_a_setting_says_so(
    tmp_path: Path, value: str, is_trusted: bool
) -> None:
    settings = read_metal(environment(tmp_path, METAL_TRUST_BOOT_NETWORK=value))

    assert settings.network == BootNetwork("https://metal.example", is_trusted=is_trusted)


def test_without_a_port_no_key_is_needed() -> None:
    settings = read_metal({"NODEPOOL_INVENTORY": "/i"})

    assert (settings.report_port, settings.report_url, settings.report_key) == (-1, "", "")


def test_no_representation_shows_the_key(tmp_path: Path) -> None:
    assert KEY not in repr(read_metal(environment(tmp_path)))


@pytest.mark.parametrize(
    ("name", "value", "cause"),
    [
        ("INVENTORY", "", "NODEPOOL_INVENTORY is not set; it names the inventory file"),
        ("INVENTORY", "i.yaml", "NODEPOOL_INVENTORY is 'i.yaml', no absolute path"),
        ("METAL_POLL_SECONDS", "0", "NODEPOOL_METAL_POLL_SECONDS is '0'; it must be from 1 to 600"),
        (
            "METAL_REPORT_PORT",
            "x",
            "NODEPOOL_METAL_REPORT_PORT is 'x'; it must be from -1",
        ),
        ("METAL_REPORT_URL", "metal", "NODEPOOL_METAL_REPORT_URL is 'metal'; it must be the http"),
        (
            "METAL_TRUST_BOOT_NETWORK",
            "yes",
            "NODEPOOL_METAL_TRUST_BOOT_NETWORK is 'yes'; it must be on or off",
        ),
        ("METAL_REPORT_KEY_FILE", "", "NODEPOOL_METAL_REPORT_KEY_FILE"),
        ("METAL_REPORT_KEY_FILE", "/nowhere", "NODEPOOL_METAL_REPORT_KEY_FILE"),
    ],
)
def test_a_wrong_value_names_the_variable_and_the_fix(
    tmp_path: Path, name: str, value: str, cause: str
) -> None:
    with pytest.raises(SettingsError) as raised:
        read_metal(environment(tmp_path, **{name: value}))

    assert cause in str(raised.value)


def test_a_key_that_can_be_guessed_is_refused(tmp_path: Path) -> None:
    given = environment(tmp_path)
    (tmp_path / "key").write_text("short")

    with pytest.raises(SettingsError, match="at least 32 characters; openssl rand -hex 32"):
        read_metal(given)
