"""How replies of the JetStream API are understood."""

import json

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from nodepool.nats.log.api import parse_reply, stored_position
from nodepool.nats.wire.errors import Conflict, InDoubt, ServerRefusal


def reply(body: object, headers: dict[str, str] | None = None) -> Msg:
    return Msg(Client(), data=json.dumps(body).encode(), headers=headers)


def failed(code: int, description: str) -> Msg:
    return reply({"error": {"code": 400, "err_code": code, "description": description}})


def test_a_reply_without_an_error_is_its_content() -> None:
    # given the reply to a publish
    message = reply({"stream": "NODEPOOL", "seq": 17})

    # when it is parsed
    # then it is what the server sent, and says where the message is stored
    assert parse_reply(message) == {"stream": "NODEPOOL", "seq": 17}
    assert stored_position(message) == 17


@pytest.mark.parametrize("code", [10071, 10164, 10201])
def test_an_error_that_says_another_writer_came_first_is_a_conflict(code: int) -> None:
    # given such an error
    # when the reply is parsed
    # then it is a conflict, with the words of the server
    with pytest.raises(Conflict, match="wrong last sequence: 4"):
        parse_reply(failed(code, "wrong last sequence: 4"))


def test_any_other_error_is_a_refusal_with_its_code() -> None:
    # given an error of another kind
    # when the reply is parsed
    with pytest.raises(ServerRefusal) as error:
        stored_position(failed(10047, "insufficient storage resources available"))

    # then it is a refusal in one line
    assert error.value.code == 10047
    assert str(error.value) == (
        "the server refuses: insufficient storage resources available (10047)"
    )


def test_a_reply_that_nothing_serves_the_subject_is_in_doubt() -> None:
    # given the status that a server sends where no stream answers
    message = Msg(Client(), headers={"Status": "503"})

    # when it is parsed
    # then it is not known whether anything is stored
    with pytest.raises(InDoubt):
        parse_reply(message)
