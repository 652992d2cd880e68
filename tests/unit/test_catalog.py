import pytest

from nodepool.contract.catalog import INSTANCE_TYPES, ZONES, Access, Backend, Kind, is_offered

REAL = "LAB-01A"
"""The zone of real machines of one's own."""


def test_the_catalogue_holds_every_published_type_and_zone_once() -> None:
    kinds = [item.kind for item in INSTANCE_TYPES.values()]

    published = [name for name, zone in ZONES.items() if zone.provider == "fleet"]

    assert (len(INSTANCE_TYPES), len(published)) == (26, 52)
    assert (kinds.count(Kind.GPU), kinds.count(Kind.CPU)) == (14, 12)


def test_one_zone_is_of_real_machines_and_offers_gpus_and_cpus_to_no_customer_by_itself() -> None:
    offered = {item.kind for item in INSTANCE_TYPES.values() if REAL in item.zones}

    assert [name for name, zone in ZONES.items() if zone.provider == "metal"] == [REAL]
    assert offered == {Kind.GPU, Kind.CPU}
    assert ZONES[REAL].access is Access.OTHER


def test_sixteen_zones_are_general_access() -> None:
    general = [zone.name for zone in ZONES.values() if zone.access == Access.GENERAL]

    assert len(general) == 16
    assert "RNO2A" in general
    assert "CA-EAST-01A" not in general


def test_a_region_is_its_zone_without_the_last_letter() -> None:
    assert all(zone.region == zone.name[:-1] for zone in ZONES.values())
    assert all(zone.name[-1].isalpha() and zone.region[-1].isdigit() for zone in ZONES.values())
    assert ZONES["RNO2A"].region == "RNO2"


def test_every_zone_of_a_type_is_a_known_zone_named_once() -> None:
    for item in INSTANCE_TYPES.values():
        assert set(item.zones) <= set(ZONES)
        assert len(set(item.zones)) == len(item.zones)


def test_the_zones_without_general_access_that_offer_types_are_these_five() -> None:
    used = {zone for item in INSTANCE_TYPES.values() for zone in item.zones}

    others = {name for name in used - {REAL} if ZONES[name].access == Access.OTHER}

    assert others == {"CA-EAST-01A", "US-CENTRAL-09A", "US-EAST-15A", "US-EAST-17A", "US-WEST-02B"}


def test_arm_machines_are_exactly_the_superchips() -> None:
    superchips = {item.id for item in INSTANCE_TYPES.values() if item.superchip}
    arm = {item.id for item in INSTANCE_TYPES.values() if item.arch == "arm64"}

    assert superchips == arm
    assert len(superchips) == 5
    assert {item.arch for item in INSTANCE_TYPES.values()} == {"amd64", "arm64"}


def test_racks_have_eighteen_nodes_of_four_gpus() -> None:
    racks = [item for item in INSTANCE_TYPES.values() if item.rack_size]

    assert [(item.id, item.rack_size, item.gpus) for item in racks] == [
        ("gb200-4x", 18, 4),
        ("gb300-4x", 18, 4),
        ("gb300-4x-e", 18, 4),
        ("verarubin-4x-e", 18, 4),
    ]


def test_only_gpu_types_have_gpus_with_a_model_and_memory() -> None:
    for item in INSTANCE_TYPES.values():
        described = (item.gpus > 0, item.gpu_model != "", item.gpu_memory_gb > 0)

        assert described == (item.kind == Kind.GPU,) * 3


def test_memory_is_the_measured_figure_or_the_advertised_one_in_kibibytes() -> None:
    measured, advertised = INSTANCE_TYPES["gd-8xa100-i128"], INSTANCE_TYPES["b300-8x"]

    assert (measured.memory_ki, measured.memory_measured) == (2_112_249_840, True)
    assert (advertised.memory_ki, advertised.memory_measured) == (4096 * 1024**2, False)
    assert sum(item.memory_measured for item in INSTANCE_TYPES.values()) == 18


def test_backends_are_those_published() -> None:
    by_backend = {
        backend: {item.id for item in INSTANCE_TYPES.values() if item.backend == backend}
        for backend in (Backend.INFINIBAND, Backend.ROCE)
    }

    assert by_backend == {
        Backend.INFINIBAND: {
            "gd-8xh100ib-i128",
            "gd-8xh200ib-i128",
            "b200-8x",
            "b300-8x",
            "gb300-4x",
            "cd-hc-a384ib-genoa",
        },
        Backend.ROCE: {"gb300-4x-e", "verarubin-4x-e"},
    }


def test_a_type_that_no_zone_offers_is_in_the_catalogue_all_the_same() -> None:
    nowhere = {item.id for item in INSTANCE_TYPES.values() if not item.zones}

    assert nowhere == {
        "gb300-4x-e",
        "turin-gp-v2",
        "cd-gp-i64-erapids-v2",
        "cd-gp-l-i64-erapids",
    }


@pytest.mark.parametrize(
    ("instance_type", "zone", "expected"),
    [
        pytest.param("gd-8xh100ib-i128", "US-EAST-02A", True, id="listed by its short form"),
        pytest.param("gd-8xh100ib-i128", "US-WEST-02B", True, id="listed with another letter"),
        pytest.param("gd-8xh100ib-i128", "US-EAST-13A", False, id="known zone without the type"),
        pytest.param("gb300-4x-e", "US-EAST-04A", False, id="type offered nowhere"),
        pytest.param("cpu-4", "US-EAST-04A", False, id="unknown type"),
        pytest.param("gd-8xa100-i128", "US-EAST-99A", False, id="unknown zone"),
        pytest.param("gd-8xa100-i128", "us-east-04a", False, id="small letters"),
        pytest.param("", "", False, id="nothing"),
    ],
)
def test_a_type_is_offered_only_in_its_own_zones(
    instance_type: str, zone: str, expected: bool
) -> None:
    assert is_offered(instance_type, zone) is expected
