"""The inventory file of real machines: what is read from it, and what is said of each mistake."""

from pathlib import Path

import pytest

from metal.declaring import build_declaration
from metal.host.inventory_file import (
    DOCUMENTS_MAX,
    SIZE_MAX,
    InventoryError,
    parse_inventory,
    read_inventory,
)
from metal.inventory.addresses import BootNetwork
from metal.inventory.inventory import KnownMachine, Place
from metal.inventory.model import Expected, Gpus, Reference
from metal.inventory.rules import FAULTS_MAX, MACHINES_MAX
from nodepool.contract.keys import machine_key

ZONE = "US-EAST-04A"
PINNED = "ab" * 32
RACK = f"""
apiVersion: metal/v1alpha1
kind: Rack
name: r12
zone: {ZONE}
instanceType: gd-8xh100ib-i128
controllers:
  credentials: {{file: /etc/bmc/r12}}
  caFile: /etc/bmc/ca.pem
machines:
  - name: m1
    position: 1
    controller: {{address: "https://10.0.12.1"}}
    expected:
      serial: SN1
      memoryGib: 2048
      macs: ["00-5C-52-31-3A-01"]
  - name: m2
    position: 5
    controller:
      address: HTTPS://BMC-2.example:443/
      system: "1"
      credentials: {{environment: BMC_M2}}
      fingerprint: SHA256:{":".join(["AB"] * 32)}
    expected:
      serial: SN2
      memoryGib: 1024
      gpus: {{count: 4}}
---
apiVersion: metal/v1alpha1
kind: BootProfile
instanceType: gd-8xh100ib-i128
image: https://boot.example/node.efi
kernelArguments: [console=ttyS0, nodepool.token_file=/run/token]
joinToken: {{file: /etc/join}}
---
apiVersion: metal/v1alpha1
kind: BootProfile
instanceType: gd-8xh100ib-i128
org: acme
cluster: prod
target: Pxe
image: https://boot.example/acme.efi
joinToken: {{environment: ACME_JOIN}}
---
apiVersion: metal/v1alpha1
kind: WipeProfile
instanceType: gd-8xh100ib-i128
image: https://boot.example/wipe.efi?report={{report}}
"""
REFERENCE = "write the secret to a file of mode 0600 and name that file with {file: /its/path}"


def faults_of(text: str) -> tuple[str, ...]:
    """What is said of an inventory."""
    with pytest.raises(InventoryError) as raised:
        parse_inventory(text, "inventory.yaml")
    return raised.value.faults


def test_machines_are_read_with_what_their_rack_and_their_type_say() -> None:
    inventory = parse_inventory(RACK, "inventory.yaml")

    assert inventory.machines == {
        machine_key(ZONE, "m1"): KnownMachine(
            zone=ZONE,
            name="m1",
            instance_type="gd-8xh100ib-i128",
            rack="r12",
            position=1,
            place=Place(
                "https://10.0.12.1", Reference(file="/etc/bmc/r12"), ca_file="/etc/bmc/ca.pem"
            ),
            expected=Expected(
                serial="SN1",
                memory_gib=2048,
                gpus=Gpus(count=8, model="H100"),
                macs=("00-5C-52-31-3A-01",),
            ),
        ),
        machine_key(ZONE, "m2"): KnownMachine(
            zone=ZONE,
            name="m2",
            instance_type="gd-8xh100ib-i128",
            rack="r12",
            position=5,
            place=Place(
                "https://bmc-2.example",
                Reference(environment="BMC_M2"),
                system="1",
                fingerprint=PINNED,
            ),
            expected=Expected(serial="SN2", memory_gib=1024, gpus=Gpus(count=4)),
        ),
    }


@pytest.mark.parametrize(("written", "minutes"), [("", 240), ("withinMinutes: 90\n", 90)])
def test_machines_have_the_minutes_of_the_wipe_profile_of_their_type(
    written: str, minutes: int
) -> None:
    inventory = parse_inventory(RACK + written, "inventory.yaml")

    declared = [build_declaration(each) for each in inventory.machines.values()]
    assert [each.wipe_minutes for each in declared] == [minutes] * 2


def test_a_cluster_boots_its_own_profile_or_else_that_of_all() -> None:
    inventory = parse_inventory(RACK, "inventory.yaml")

    images = [
        profile.image if profile else ""
        for profile in (
            inventory.boot_profile("gd-8xh100ib-i128", "acme", "prod"),
            inventory.boot_profile("gd-8xh100ib-i128", "acme", "test"),
            inventory.boot_profile("gd-8xa100-i128", "acme", "prod"),
        )
    ]

    assert images == ["https://boot.example/acme.efi", "https://boot.example/node.efi", ""]
    assert (
        inventory.wipes["gd-8xh100ib-i128"].image == "https://boot.example/wipe.efi?report={report}"
    )


# What to write for what, where that is told if not at what was written, the field, and the cause.
MISTAKES = [
    (
        "name: m2",
        "name: m1",
        "name: m1\n    position: 5",
        "machines[1].name",
        "there is a machine m1 in US-EAST-04A already",
    ),
    ("name: m2", "name: M 2", "", "machines[1].name", "name 'M 2' must be lower case letters"),
    (
        'HTTPS://BMC-2.example:443/\n      system: "1"',
        "https://10.0.12.1:443",
        "",
        "machines[1].controller.address",
        "is the address of m1 of rack r12 too",
    ),
    ("SN2", "sn1", "", "machines[1].expected.serial", "'sn1' is the serial number of m1 of rack"),
    ("SN2", '" "', "", "machines[1].expected.serial", "must be the serial number as the"),
    (
        "US-EAST-04A",
        "US-EAST-4A",
        "",
        "zone",
        "US-EAST-4A is not a known zone; did you mean US-EAST-04A?",
    ),
    (
        "US-EAST-04A",
        "EU-SOUTH-03B",
        "instanceType:",
        "instanceType",
        "gd-8xh100ib-i128 is not offered in EU-SOUTH-03B",
    ),
    (
        "gd-8xh100ib-i128",
        "gd-8xh100-i128",
        "",
        "instanceType",
        "gd-8xh100-i128 is not a known instance type; did you mean gd-8xh100ib-i128?",
    ),
    ("name: r12", "name: ''", "", "name", "name is empty"),
    (
        "position: 5",
        "position: 1",
        "position: 1\n    controller:\n",
        "machines[1].position",
        "1 is the position of m1 too",
    ),
    ("position: 5", "position: 0", "", "machines[1].position", "must lie between 1 and 64"),
    ("position: 5", "positon: 5", "", "machines[1].positon", "did you mean position?"),
    ("position: 5", "colour: 5", "", "machines[1].colour", "is not a known field; remove it"),
    ("position: 5", "position: '5'", "", "machines[1].position", "input should be a valid integer"),
    ("SHA256:AB", "SHA256:GG", "", "machines[1].controller.fingerprint", "is no SHA-256"),
    ("SHA256:AB:", "sha1:", "", "machines[1].controller.fingerprint", "openssl x509 -noout"),
    ("memoryGib: 1024", "memoryGib: 0", "", "machines[1].expected.memoryGib", "between 1 and"),
    (
        "serial: SN2",
        "serial: SN2\n      biosVersion: ' 2.1'",
        "biosVersion",
        "machines[1].expected.biosVersion",
        "must be the version of the BIOS as the controller tells it",
    ),
    (
        "count: 4",
        "count: 4, firmwareVersion: ' 96'",
        "",
        "machines[1].expected.gpus.firmwareVersion",
        "must be the version of the firmware as the controller tells it",
    ),
    ("count: 4", "count: -1", "", "machines[1].expected.gpus.count", "between 0 and 64"),
    ("00-5C", "5C", "", "machines[0].expected.macs[0]", "is no MAC address; write six pairs"),
    ("file: /etc/bmc/r12", "file: r12", "", "controllers.credentials", "is no absolute path"),
    ("{file: /etc/bmc/r12}", "{}", "", "controllers.credentials", "needs either file or env"),
    ("BMC_M2", "BMC M2", "", "machines[1].controller.credentials", "no name of a variable"),
    ("caFile: /etc/bmc/ca.pem", "caFile: ca.pem", "", "controllers.caFile", "an absolute path"),
    (
        "  caFile: /etc/bmc/ca.pem\n",
        "",
        'controller: {address: "https://10.0.12.1"}',
        "machines[0].controller",
        "needs caFile, here or of",
    ),
    (
        "  credentials: {file: /etc/bmc/r12}\n",
        "",
        'controller: {address: "https://10.0.12.1"}',
        "machines[0].controller.credentials",
        "is required, here or of the rack",
    ),
    ("https://10.0.12.1", "10.0.12.1", "", "machines[0].controller.address", "write https://"),
    ("https://10.0.12.1", "http://10.0.12.1", "", "machines[0].controller.address", "https://;"),
    ("https://10.0.12.1", "ftp://10.0.12.1", "", "machines[0].controller.address", "https://"),
    ("10.0.12.1", "10.0.12.1/redfish", "", "machines[0].controller.address", "must end after"),
    ("10.0.12.1", "10.0.12.1:99999", "", "machines[0].controller.address", "is no address"),
    ('system: "1"', 'system: "1/2"', "", "machines[1].controller.system", "is no id of a system"),
    (
        "?report={report}",
        "",
        "image: https://boot.example/wipe",
        "image",
        "must hold {report}, the address of its report",
    ),
    (
        "image: https://boot.example/wipe",
        "target: Pxe\nimage: https://boot.example/wipe",
        "",
        "target",
        "must be UefiHttp",
    ),
    ("kind: WipeProfile", "kind: Wipe", "", "kind", "did you mean WipeProfile?"),
    ("kind: WipeProfile", "kind: 7", "", "kind", "must be one of Rack, BootProfile, WipeProfile"),
    (
        "cluster: prod\n",
        "",
        "apiVersion: metal/v1alpha1\nkind: BootProfile\ninstanceType: gd-8xh100ib-i128\norg",
        "cluster",
        "is required: a cluster is named by org and cluster",
    ),
    (
        "org: acme\ncluster: prod\n",
        "",
        "instanceType: gd-8xh100ib-i128\ntarget",
        "instanceType",
        "has a BootProfile for all other clu",
    ),
    (
        "efi\njoinToken: {environment",
        "efi?config={config}\njoinToken: {environment",
        "target: Pxe",
        "target",
        "must be UefiHttp: no other boot tells the image what {config} is",
    ),
    ("target: Pxe", "target: Tape", "", "target", "input should be 'UefiHttp' or 'Pxe'"),
    ("console=ttyS0", "'a b'", "", "kernelArguments[0]", "must be one argument"),
    ("console=ttyS0", "join_token=abc", "", "kernelArguments[0]", "may hold a secret, which"),
    ("https://boot.example/wipe", "wipe", "", "image", "is no address of an image"),
    ("file: /etc/join", "file: join", "", "joinToken", "is no absolute path"),
    ("metal/v1alpha1", "v1", "", "apiVersion", "input should be 'metal/v1alpha1'"),
]


@pytest.mark.parametrize(
    ("right", "wrong", "mark", "field", "cause"), MISTAKES, ids=[each[1] for each in MISTAKES]
)
def test_a_mistake_is_told_with_its_line_its_field_and_the_fix(
    right: str, wrong: str, mark: str, field: str, cause: str
) -> None:
    assert right in RACK
    text = RACK.replace(right, wrong, 1)

    told = faults_of(text)

    line = 1 + text[: text.index(mark or wrong)].count("\n")
    assert f" line {line}: {field}: " in told[0]
    assert cause in told[0]
    assert told[0].startswith("inventory.yaml, document ")


@pytest.mark.parametrize(
    ("right", "wrong", "field"),
    [
        ("{file: /etc/bmc/r12}", "root:calvin", "controllers.credentials"),
        ("{file: /etc/bmc/r12}", "{password: calvin}", "controllers.credentials.password"),
        ("{file: /etc/bmc/r12}", "{file: calvin}", "controllers.credentials"),
        ("{file: /etc/bmc/r12}", "{environment: cal-vin}", "controllers.credentials"),
        ("{file: /etc/join}", "calvin", "joinToken"),
        ("{file: /etc/join}", "[calvin]", "joinToken"),
        ("{file: /etc/join}", "{token: calvin}", "joinToken.token"),
        ("10.0.12.1", "root:calvin@10.0.12.1", "machines[0].controller.address"),
        ("10.0.12.1", "10.0.12.1?password=calvin", "machines[0].controller.address"),
        ("position: 5", "position: calvin", "machines[1].position"),
        ("position: 5", "Password: calvin", "machines[1].Password"),
        ("boot.example/wipe", "root:calvin@boot.example/wipe", "image"),
        ("console=ttyS0", "bmc_password=calvin", "kernelArguments[0]"),
    ],
)
def test_a_secret_in_plain_text_is_refused_and_not_repeated(
    right: str, wrong: str, field: str
) -> None:
    told = faults_of(RACK.replace(right, wrong, 1))

    assert f": {field}: " in told[0]
    assert not any("calvin" in fault or "cal-vin" in fault for fault in told)


def test_a_controller_without_tls_is_for_emulators_on_this_machine() -> None:
    text = RACK.replace("https://10.0.12.1", "http://127.0.0.1:8000")

    inventory = parse_inventory(text, "inventory.yaml")

    place = inventory.machines[machine_key(ZONE, "m1")].place
    assert (place.address, place.ca_file) == ("http://127.0.0.1:8000", "")


PLAIN_IMAGE = "image: must begin with https://: over http://, the address that takes the place of"
PLAIN_URL = (
    "image: needs https:// in NODEPOOL_METAL_REPORT_URL: {%s} stands for an address there, at which"
)
TOKEN, WIPE = "the join token", "the right to confirm a wipe"


@pytest.mark.parametrize(
    ("before", "after", "url", "faults"),
    [
        (
            "https://boot.example/node.efi",
            "http://boot.example/node.efi?c={config}",
            "https://metal.example",
            [f"{PLAIN_IMAGE} {{config}} is in clear text, and with it {TOKEN}"],
        ),
        (
            "https://boot.example/wipe.efi",
            "http://boot.example/wipe.efi",
            "https://metal.example",
            [f"{PLAIN_IMAGE} {{report}} is in clear text, and with it {WIPE}"],
        ),
        (
            "https://boot.example/node.efi",
            "HTTPS://boot.example/node.efi?c={config}",
            "HTTP://10.0.0.1:9490",
            [f"{PLAIN_URL % 'config'} {TOKEN}", f"{PLAIN_URL % 'report'} {WIPE}"],
        ),
    ],
)
def test_a_secret_passes_in_clear_text_only_where_the_network_is_trusted(
    before: str, after: str, url: str, faults: list[str]
) -> None:
    # given a profile that sends a join token, or the address of a report, over http://
    text = RACK.replace(before, after)

    # then it is refused with the field and the fix, unless the network is trusted
    with pytest.raises(InventoryError) as raised:
        parse_inventory(text, "inventory.yaml", BootNetwork(url))
    for told, fault in zip(raised.value.faults, faults, strict=True):
        assert fault in told
        assert told.endswith(
            "set NODEPOOL_METAL_TRUST_BOOT_NETWORK=on if nobody else reads that network"
        )
    trusted = parse_inventory(text, "inventory.yaml", BootNetwork(url, is_trusted=True))
    assert len(trusted.machines) == 2


@pytest.mark.parametrize(
    ("image", "url"),
    [
        ("https://boot.example/node.efi?c={config}", "https://metal.example"),
        ("https://boot.example/node.efi?c={config}", ""),
        ("http://127.0.0.1/node.efi?c={config}", "http://localhost:9490"),
        ("http://boot.example/node.efi", "https://metal.example"),
    ],
)
def test_a_boot_without_a_secret_on_the_network_needs_no_trust(image: str, url: str) -> None:
    text = RACK.replace("https://boot.example/node.efi", image)

    assert len(parse_inventory(text, "inventory.yaml", BootNetwork(url)).machines) == 2


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("https://[FD00::1]", "https://[fd00::1]"),
        ("https://[fd00::1]:8443/", "https://[fd00::1]:8443"),
        ("https://bmc.example:443", "https://bmc.example"),
    ],
)
def test_an_address_is_read_in_one_form(written: str, read: str) -> None:
    inventory = parse_inventory(RACK.replace("https://10.0.12.1", written), "inventory.yaml")

    assert inventory.machines[machine_key(ZONE, "m1")].place.address == read


def test_one_mac_address_belongs_to_one_machine() -> None:
    text = RACK.replace("gpus: {count: 4}", "macs: ['005c52313a01']")

    assert "00:5c:52:31:3a:01 is an address of m1 of rack r12 too; read both" in faults_of(text)[0]


def test_machines_without_a_profile_to_boot_and_to_be_wiped_are_refused() -> None:
    rack = RACK.split("---", maxsplit=1)[0]

    assert [fault.partition(": ")[2] for fault in faults_of(rack)] == [
        "instanceType: gd-8xh100ib-i128 has no BootProfile, so its machines cannot join a cluster;"
        " add one",
        "instanceType: gd-8xh100ib-i128 has no WipeProfile, so its machines cannot be wiped;"
        " add one",
    ]


def test_a_rack_holds_no_more_machines_than_its_type_has() -> None:
    machine = "  - {name: m%d, position: %d, controller: {address: https://b%d}, expected: %s}"
    lines = [machine % (n, n, n, f"{{serial: S{n}, memoryGib: 1}}") for n in range(1, 20)]
    head, _, rest = RACK.partition("  - name: m1")
    profiles = rest.partition("---")[2]
    text = f"{head}{chr(10).join(lines)}\n---{profiles}".replace("gd-8xh100ib-i128", "gb200-4x")

    assert any(
        "machines: has 19 machines, and a rack of gb200-4x has 18" in each
        for each in faults_of(text)
    )


def test_all_mistakes_are_told_at_once_up_to_a_bound() -> None:
    rack = RACK.split("---", maxsplit=1)[0].replace("position: ", "position: 9")

    assert len(faults_of("---".join([rack] * 40))) == FAULTS_MAX


def test_an_inventory_has_a_bound_of_machines() -> None:
    machine = "  - {name: m, position: 1, controller: {address: a}, expected: %s}\n"
    head = RACK.partition("  - name: m1")[0]
    text = head + machine % "{serial: S, memoryGib: 1}" * (MACHINES_MAX + 1)

    told = faults_of(text)

    assert len(told) == 1
    assert f"brings the machines to {MACHINES_MAX + 1}, more than the {MACHINES_MAX}" in told[0]


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "is empty; begin with apiVersion: metal/v1alpha1"),
        ("[]", "line 1: is not a map; begin with apiVersion: metal/v1alpha1"),
        ("a: [", "line 2: "),
        ("a: &b 1\nc: *b", "line 2: *b is an alias; write the value out instead"),
        ("kind: Rack\nkind: Rack", 'line 2: "kind" is given twice; keep one'),
        ("---\na: 1\n" * (DOCUMENTS_MAX + 1), f"has more than {DOCUMENTS_MAX} documents"),
        (" " * (SIZE_MAX + 1), f"is larger than the {SIZE_MAX} bytes allowed"),
        ("kind: Rack\nmachines: .nan", "is required"),
    ],
    ids=range(8),
)
def test_a_text_that_is_no_inventory_is_refused(text: str, cause: str) -> None:
    assert cause in faults_of(text)[0]


def test_a_file_is_read_and_a_missing_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "inventory.yaml"
    with pytest.raises(InventoryError, match=r"inventory\.yaml: cannot be read: No such file"):
        read_inventory(file)

    file.write_text(RACK)

    assert len(read_inventory(file).machines) == 2


def test_a_secret_is_named_by_either_of_two_references() -> None:
    text = RACK.replace("{file: /etc/join}", "{file: /etc/join, environment: JOIN}")

    assert f"joinToken: needs either file or environment; {REFERENCE}" in faults_of(text)[0]
