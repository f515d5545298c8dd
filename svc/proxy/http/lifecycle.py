"""
The life of an exchange as a table: which stage follows which, and by what.

Owns the names and the order, for people, diagrams and tests. The exchange itself keeps no stage: on the hot path its
own attributes say the same, and :func:`stage_of` reads them. ``tests.proxy.test_lifecycle`` holds both together.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from svc.proxy.http.exchange import Exchange


class Stage(Enum):
    """What an exchange is waiting for."""

    #: The head is being judged; the notary's own paths wait here for the database.
    BEGINNING = "beginning"
    #: The notary is asked whether a record will have its place.
    ADMISSION = "admission"
    #: A connection to the application is being made.
    CONNECTING = "connecting"
    #: The request streams to the application.
    REQUEST = "request"
    #: The application has the whole request and has not answered.
    WAITING = "waiting"
    #: The response streams to the client.
    RESPONSE = "response"
    #: The response is whole but for its end, which waits for the record.
    RECORD = "record"
    #: Everything is released, or the connection is dropped.
    FINISHED = "finished"


def stage_of(exchange: Exchange) -> Stage:
    """
    Read the stage of an exchange.

    Args:
        exchange: the exchange.

    Returns:
        Its stage.
    """
    if exchange.finished:
        return Stage.FINISHED
    if exchange._response_ended:
        return Stage.RECORD
    if exchange._response is not None:
        return Stage.RESPONSE
    if exchange._upstream is not None:
        return Stage.WAITING if exchange.request_ended else Stage.REQUEST
    if exchange._permit is None:
        return Stage.BEGINNING
    if exchange._recorder is not None and exchange._reservation is None:
        return Stage.ADMISSION
    return Stage.CONNECTING


class Input(Enum):
    """What moves an exchange; the value is the word of diagrams, ``tests.proxy.test_lifecycle`` names the methods."""

    BEGIN = "head judged"
    ADMITTED = "admitted"
    CONNECTED = "connected"
    NO_CONNECTION = "no connection"
    REQUEST_BODY = "body too large"
    REQUEST_END = "request whole"
    ANSWERED = "answer comes"
    UPSTREAM_LOST = "application gone"
    ANSWER = "own answer"
    RECORDED = "record durable"
    NOT_RECORDED = "record failed"
    LATE = "too late"
    CUT = "must end"
    CLIENT_LOST = "client gone"


#: From one event to the next: an event may pass several stages at once, where nothing has to be waited for.
TRANSITIONS: Final[Mapping[tuple[Stage, Input], tuple[Stage, ...]]] = {
    (Stage.BEGINNING, Input.BEGIN): (Stage.ADMISSION, Stage.CONNECTING, Stage.REQUEST, Stage.FINISHED),
    (Stage.BEGINNING, Input.ANSWER): (Stage.FINISHED,),
    (Stage.BEGINNING, Input.LATE): (Stage.FINISHED,),
    (Stage.BEGINNING, Input.CUT): (Stage.FINISHED,),
    (Stage.BEGINNING, Input.CLIENT_LOST): (Stage.FINISHED,),
    (Stage.ADMISSION, Input.ADMITTED): (Stage.CONNECTING, Stage.REQUEST, Stage.WAITING, Stage.RECORD, Stage.FINISHED),
    (Stage.ADMISSION, Input.REQUEST_BODY): (Stage.FINISHED,),
    (Stage.ADMISSION, Input.LATE): (Stage.FINISHED,),
    (Stage.ADMISSION, Input.CUT): (Stage.FINISHED,),
    (Stage.ADMISSION, Input.CLIENT_LOST): (Stage.FINISHED,),
    (Stage.CONNECTING, Input.CONNECTED): (Stage.REQUEST, Stage.WAITING),
    (Stage.CONNECTING, Input.NO_CONNECTION): (Stage.RECORD, Stage.FINISHED),
    (Stage.CONNECTING, Input.LATE): (Stage.RECORD, Stage.FINISHED),
    (Stage.CONNECTING, Input.CUT): (Stage.FINISHED,),
    (Stage.CONNECTING, Input.CLIENT_LOST): (Stage.FINISHED,),
    (Stage.REQUEST, Input.REQUEST_BODY): (Stage.FINISHED,),
    (Stage.REQUEST, Input.REQUEST_END): (Stage.WAITING,),
    (Stage.REQUEST, Input.ANSWERED): (Stage.RESPONSE, Stage.RECORD, Stage.FINISHED),
    (Stage.REQUEST, Input.UPSTREAM_LOST): (Stage.RECORD, Stage.FINISHED),
    (Stage.REQUEST, Input.LATE): (Stage.RECORD, Stage.FINISHED),
    (Stage.REQUEST, Input.CUT): (Stage.FINISHED,),
    (Stage.REQUEST, Input.CLIENT_LOST): (Stage.FINISHED,),
    (Stage.WAITING, Input.ANSWERED): (Stage.RESPONSE, Stage.RECORD, Stage.FINISHED),
    (Stage.WAITING, Input.UPSTREAM_LOST): (Stage.RECORD, Stage.FINISHED),
    (Stage.WAITING, Input.LATE): (Stage.RECORD, Stage.FINISHED),
    (Stage.WAITING, Input.CUT): (Stage.FINISHED,),
    (Stage.WAITING, Input.CLIENT_LOST): (Stage.FINISHED,),
    (Stage.RESPONSE, Input.ANSWERED): (Stage.RECORD, Stage.FINISHED),
    (Stage.RESPONSE, Input.UPSTREAM_LOST): (Stage.RECORD, Stage.FINISHED),
    (Stage.RESPONSE, Input.LATE): (Stage.FINISHED,),
    (Stage.RESPONSE, Input.CUT): (Stage.FINISHED,),
    (Stage.RESPONSE, Input.CLIENT_LOST): (Stage.FINISHED,),
    (Stage.RECORD, Input.RECORDED): (Stage.FINISHED,),
    (Stage.RECORD, Input.NOT_RECORDED): (Stage.FINISHED,),
    (Stage.RECORD, Input.CUT): (Stage.FINISHED,),
    (Stage.RECORD, Input.CLIENT_LOST): (Stage.FINISHED,),
}
