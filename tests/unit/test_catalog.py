import pytest

from nodepool.contract.catalog import INSTANCE_TYPES, ZONES, Access, Backend, Kind, offered


def test_the_catalogue_holds_every_published_type_and_zone_once() -> None:
    kinds = [known.kind for known in INSTANCE_TYPES.values()]

    assert (len(INSTANCE_TYPES), len(ZONES)) == (26, 52)
    assert (kinds.count(Kind.GPU), kinds.count(Kind.CPU)) == (14, 12)


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
    for known in INSTANCE_TYPES.values():
        assert set(known.zones) <= set(ZONES)
        assert len(set(known.zones)) == len(known.zones)


def test_the_zones_without_any_general_class_that_still_offer_types_are_known() -> None:
    used = {zone for known in INSTANCE_TYPES.values() for zone in known.zones}

    others = {name for name in used if ZONES[name].access == Access.OTHER}

    assert others == {"CA-EAST-01A", "US-CENTRAL-09A", "US-EAST-15A", "US-EAST-17A", "US-WEST-02B"}


def test_arm_machines_are_exactly_the_superchips() -> None:
    superchips = {known.id for known in INSTANCE_TYPES.values() if known.superchip}
    arm = {known.id for known in INSTANCE_TYPES.values() if known.arch == "arm64"}

    assert superchips == arm
    assert len(superchips) == 5
    assert {known.arch for known in INSTANCE_TYPES.values()} == {"amd64", "arm64"}


def test_racks_have_eighteen_nodes_of_four_gpus() -> None:
    racks = [known for known in INSTANCE_TYPES.values() if known.rack_size]

    assert [(known.id, known.rack_size, known.gpus) for known in racks] == [
        ("gb200-4x", 18, 4),
        ("gb300-4x", 18, 4),
        ("gb300-4x-e", 18, 4),
        ("verarubin-4x-e", 18, 4),
    ]


def test_only_gpu_types_have_gpus_with_a_model_and_memory() -> None:
    for known in INSTANCE_TYPES.values():
        described = (known.gpus > 0, known.gpu_model != "", known.gpu_memory_gb > 0)

        assert described == (known.kind == Kind.GPU,) * 3


def test_memory_is_the_measured_figure_or_the_advertised_one_in_kibibytes() -> None:
    measured, advertised = INSTANCE_TYPES["gd-8xa100-i128"], INSTANCE_TYPES["b300-8x"]

    assert (measured.memory_ki, measured.memory_measured) == (2_112_249_840, True)
    assert (advertised.memory_ki, advertised.memory_measured) == (4096 * 1024**2, False)
    assert sum(known.memory_measured for known in INSTANCE_TYPES.values()) == 18


def test_backends_are_those_published() -> None:
    by_backend = {
        backend: {known.id for known in INSTANCE_TYPES.values() if known.backend == backend}
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


def test_types_without_zones_are_known_all_the_same() -> None:
    nowhere = {known.id for known in INSTANCE_TYPES.values() if not known.zones}

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
def test_a_type_is_offered_only_where_it_is_listed(
    instance_type: str, zone: str, expected: bool
) -> None:
    assert offered(instance_type, zone) is expected
