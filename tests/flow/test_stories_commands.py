"""Commands arrive twice, late and out of order; each is done once."""

from support.stage import Stage, WorldStage


def test_a_command_that_arrives_twice_at_once_is_done_once(stage: Stage) -> None:
    stage.given_house()
    stage.listen()

    with stage.together():
        asked = stage.apply("train", 1)
        stage.repeat(asked)

    assert set(stage.outcomes(asked)) == {"created 1"}
    assert stage.events("train") == [
        "CWNodePoolCreated",
        "CWNodeRequestQueued 1",
        "CWNodeAssigned n1",
        "CWNodeRegistered n1",
    ]


def test_a_command_that_arrives_again_later_has_the_same_outcome(stage: Stage) -> None:
    stage.given_house()
    asked = stage.apply("train", 1)
    stage.listen()

    stage.repeat(asked)

    assert stage.outcomes(asked) == ["created 1", "created 1"]
    assert stage.story("train") == []


def test_an_old_scale_that_arrives_after_a_newer_one_changes_nothing(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1)
    old = stage.scale("train", 2)
    stage.scale("train", 3)
    stage.listen()

    stage.repeat(old)

    assert stage.outcomes(old) == ["configured 2", "configured 2"]
    assert stage.story("train") == []
    assert stage.counts("train") == (3, 0, 3)


def test_an_old_deletion_that_arrives_after_the_name_was_used_again_deletes_nothing(
    stage: Stage,
) -> None:
    stage.given_house()
    stage.apply("train", 1)
    old = stage.delete("train")
    stage.apply("train", 1)
    stage.listen()

    stage.repeat(old)

    assert stage.outcomes(old) == ["deleted 1", "deleted 1"]
    assert stage.story("train") == []
    assert stage.counts("train") == (1, 0, 1)


def test_a_command_that_was_refused_stays_refused_when_it_arrives_again(stage: Stage) -> None:
    stage.given_house()
    refused = stage.scale("train", 5)
    stage.apply("train", 1)
    stage.listen()

    stage.repeat(refused)

    told = "NotFound metadata.name: NodePool train does not exist"
    assert stage.outcomes(refused) == [told, told]
    assert stage.counts("train") == (1, 0, 1)


def test_an_id_that_another_organisation_used_already_is_of_no_matter(stage: Stage) -> None:
    stage.given_house()
    stage.given_cluster("prod", org="umbrella")
    stage.given_quota(1, org="umbrella")
    stage.apply("train", 1, id="first")

    stage.apply("umbrella/prod/train", 1, id="first")
    stage.repeat("first")

    assert stage.counts("umbrella/prod/train") == (1, 0, 1)


def test_an_old_quota_that_arrives_after_a_newer_one_changes_nothing(stage: Stage) -> None:
    stage.given_house(quota=1)
    old = next(iter(id for id, (subject, _) in stage.sent.items() if "SetQuota" in subject))
    stage.given_quota(5)

    stage.repeat(old)
    stage.apply("train", 5)

    assert stage.conditions("train")["Quota"] == "Under"


def test_machines_that_are_added_twice_by_one_command_are_added_once(stage: Stage) -> None:
    stage.given_house(machines=2)
    asked = next(iter(id for id, (subject, _) in stage.sent.items() if "AddMachines" in subject))

    stage.repeat(asked)
    stage.apply("train", 3)

    assert stage.nodes("train") == ["n1", "n2"]


def test_a_pod_that_is_started_twice_by_one_command_runs_once(world: WorldStage) -> None:
    world.given_house()
    world.apply("train", 1)
    world.run_pod("n1")
    asked = next(iter(id for id, (subject, _) in world.sent.items() if "RunPod" in subject))
    world.stop_pod("n1")

    world.repeat(asked)

    assert world.outcomes(asked) == ["done", "done"]
    assert world.node_conditions("n1")["CWActive"] == "False NoWorkloads"


def test_a_preemption_that_is_asked_twice_begins_once(world: WorldStage) -> None:
    world.given_house()
    world.apply("cheap", 1, computeClass="spot")
    world.listen()

    first = world.preempt("cheap", "n1")
    world.pass_time(seconds=30)
    second = world.preempt("cheap", "n1")
    world.repeat(first)

    assert world.outcomes(first) == ["done", "done"]
    assert world.outcomes(second) == ["unchanged"]
    assert world.timed("cheap") == ["0:00 PreemptionPending n1"]


def test_an_outcome_is_told_with_the_id_of_its_command(stage: Stage) -> None:
    stage.given_house()

    stage.apply("train", 1, id="mine")

    assert stage.outcomes("mine") == ["created 1"]


def test_everything_a_command_led_to_carries_its_id(stage: Stage) -> None:
    stage.given_house()
    stage.listen()

    asked = stage.apply("train", 1)

    assert {envelope.correlationid for envelope in stage.heard("train")} == {asked}
