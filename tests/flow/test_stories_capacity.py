"""What there is to be had: machines, who wants which, and who is served first."""

from support.stage import Stage, WorldStage

RACK = "node.coreweave.cloud/rack"


def rack(*names: str) -> dict[str, object]:
    """The affinity to machines in one of these racks."""
    expression = {"key": RACK, "operator": "In", "values": list(names)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def test_a_pool_gets_the_part_of_its_nodes_that_there_is(world: WorldStage) -> None:
    world.given_house(machines=2)
    world.listen()

    world.apply("train", 3)

    assert world.events("train") == [
        "CWNodePoolCreated",
        "CWInsufficientCapacity",
        "CWNodeRequestQueued 3",
        "CWNodeAssigned n1",
        "CWNodeAssigned n2",
        "CWNodeRegistered n1",
        "CWNodeRegistered n2",
        "CWInsufficientCapacity",
    ]
    assert world.messages("train", "CWInsufficientCapacity") == [
        "2 of 3 wanted Nodes of gd-8xh100ib-i128 can be had in US-EAST-04A now",
        "none of 1 wanted Nodes of gd-8xh100ib-i128 can be had in US-EAST-04A now",
    ]
    assert world.counts("train") == (3, 0, 2)
    assert world.conditions("train")["AtTarget"] == "UnderTarget"


def test_a_pool_says_partial_while_there_are_too_few_machines(world: WorldStage) -> None:
    world.given_house(machines=2)

    with world.asleep("allocator"):
        world.apply("train", 3)
        partial = world.condition("train", "Capacity")

    assert partial == (
        "False Partial: 2 of 3 wanted Nodes of gd-8xh100ib-i128 can be had in US-EAST-04A now"
    )
    assert world.condition("train", "Capacity") == (
        "False NoneAvailable: "
        "none of 1 wanted Nodes of gd-8xh100ib-i128 can be had in US-EAST-04A now"
    )


def test_a_pool_without_any_machine_waits_until_some_arrive(stage: Stage) -> None:
    stage.given_house(machines=0)
    stage.listen()
    stage.apply("train", 2)
    none = stage.events("train"), stage.conditions("train")["Capacity"]
    stage.listen()

    stage.given_machines(3)

    assert none == (
        ["CWNodePoolCreated", "CWInsufficientCapacity", "CWNodeRequestQueued 2"],
        "NoneAvailable",
    )
    assert stage.events("train") == [
        "CWNodeAssigned n1",
        "CWNodeAssigned n2",
        "CWNodeRegistered n1",
        "CWNodeRegistered n2",
    ]
    assert stage.conditions("train")["Capacity"] == "Sufficient"
    assert stage.conditions("train")["AtTarget"] == "TargetMet"


def test_a_pool_says_once_that_there_is_no_capacity(stage: Stage) -> None:
    stage.given_house(machines=0)
    stage.apply("train", 2)
    stage.listen()

    stage.apply("train", 2, metadata={"labels": {"team": "red"}})

    assert stage.events("train") == ["CWNodePoolMetadata"]


def test_machines_that_arrive_later_go_to_those_who_came_first(stage: Stage) -> None:
    stage.given_house(machines=0)
    stage.apply("train", 2)
    stage.apply("serve", 2)

    stage.given_machines(3)

    assert stage.nodes("train") == ["n1", "n2"]
    assert stage.nodes("serve") == ["n3"]
    assert stage.conditions("serve")["Capacity"] == "NoneAvailable"


def test_default_pools_are_served_before_spot_pools(stage: Stage) -> None:
    stage.given_house(machines=0)
    stage.apply("cheap", 1, computeClass="spot")
    stage.apply("train", 1)

    stage.given_machines(1)

    assert stage.nodes("train") == ["n1"]
    assert stage.nodes("cheap") == []


def test_a_higher_priority_is_served_first_whoever_came_first(stage: Stage) -> None:
    stage.given_house(machines=0)
    stage.apply("low", 1, schedulingPriority={"value": -5})
    stage.apply("plain", 1)
    stage.apply("high", 1, schedulingPriority={"value": 5})

    stage.given_machines(2)

    assert stage.nodes("high") == ["n1"]
    assert stage.nodes("plain") == ["n2"]
    assert stage.nodes("low") == []


def test_a_pool_that_waits_keeps_its_place_when_its_labels_change(stage: Stage) -> None:
    stage.given_house(machines=0)
    stage.apply("train", 1)
    stage.apply("serve", 1)
    stage.apply("train", 1, nodeLabels={"team": "red"})

    stage.given_machines(1)

    assert stage.nodes("train") == ["n1"]
    assert stage.nodes("serve") == []


def test_an_affinity_takes_only_machines_that_satisfy_it(stage: Stage) -> None:
    stage.given_house(machines=2)
    stage.given_machines(2, labels={RACK: "r7"})
    stage.listen()

    stage.apply("train", 2, affinity=rack("r7"))

    assert stage.nodes("train") == ["n3", "n4"]
    assert stage.conditions("train")["Capacity"] == "Sufficient"


def test_an_affinity_can_leave_only_a_part_of_the_nodes_to_be_had(world: WorldStage) -> None:
    world.given_house(machines=2)
    world.given_machines(1, labels={RACK: "r7"})

    with world.asleep("allocator"):
        world.apply("train", 2, affinity=rack("r7"))
        partial = world.condition("train", "Capacity")

    assert partial == (
        "False PartialNodeAffinity: 1 of 2 wanted Nodes of gd-8xh100ib-i128 "
        "that satisfy the node affinity can be had in US-EAST-04A now"
    )
    assert world.nodes("train") == ["n3"]
    assert world.conditions("train")["Capacity"] == "NoneAvailableNodeAffinity"


def test_an_affinity_can_leave_no_node_to_be_had(stage: Stage) -> None:
    stage.given_house(machines=2)
    stage.listen()

    stage.apply("train", 1, affinity=rack("r7"))

    assert stage.condition("train", "Capacity") == (
        "False NoneAvailableNodeAffinity: none of 1 wanted Nodes of gd-8xh100ib-i128 "
        "that satisfy the node affinity can be had in US-EAST-04A now"
    )
    assert stage.events("train") == [
        "CWNodePoolCreated",
        "CWInsufficientCapacity",
        "CWNodeRequestQueued 1",
    ]


def test_a_pool_with_an_affinity_that_waits_holds_up_nobody(stage: Stage) -> None:
    stage.given_house(machines=1)
    stage.apply("train", 1, affinity=rack("r7"))

    stage.apply("serve", 1)

    assert stage.nodes("serve") == ["n1"]
    assert stage.conditions("train")["Capacity"] == "NoneAvailable"


def test_a_machine_that_satisfies_an_affinity_and_arrives_later_is_taken(stage: Stage) -> None:
    stage.given_house(machines=1)
    stage.apply("train", 1, affinity=rack("r7"))

    stage.given_machines(1, labels={RACK: "r7"})

    assert stage.nodes("train") == ["n2"]
    assert stage.conditions("train")["AtTarget"] == "TargetMet"


def test_an_affinity_that_is_lifted_lets_the_pool_have_any_machine(stage: Stage) -> None:
    stage.given_house(machines=1)
    stage.apply("train", 1, affinity=rack("r7"))

    stage.apply("train", 1)

    assert stage.nodes("train") == ["n1"]
    assert stage.conditions("train")["Capacity"] == "Sufficient"


def test_pools_of_another_type_or_zone_do_not_matter(stage: Stage) -> None:
    stage.given_house(machines=1)
    stage.given_cluster("west", zone="US-WEST-04A")
    stage.given_quota(9, zone="US-WEST-04A")
    stage.given_machines(1, zone="US-WEST-04A")

    stage.apply("train", 1)
    stage.apply("acme/west/train", 2)

    assert stage.conditions("train")["Capacity"] == "Sufficient"
    assert stage.conditions("acme/west/train")["Capacity"] == "NoneAvailable"
    assert stage.nodes() == ["n1", "n2"]
