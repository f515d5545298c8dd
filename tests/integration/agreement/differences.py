"""
Where svc-broker and Mosquitto 2.0.11 differ, and what the standard says about it.

The tests assert these tables exactly, so that a change on either side is noticed; ``docs/broker.md`` shows them.
``python -m tests.integration.agreement.differences`` prints them in that form.
"""

from __future__ import annotations

from dataclasses import dataclass

from docs.generator.pages import table
from svc.wire.mqtt import Version
from tests.integration.agreement.play import BOTH

V5 = (Version.V5,)
V311 = (Version.V311,)
REASON = "4.13.1: a server should say why it closes"
EXCEEDED = "3.3.4: 0x93 is for exceeding the server's Receive Maximum; svc-broker closes at a hundred times as much"
MAXIMUM = "3.3.4, 4.9 [MQTT-3.3.4-9]: the Receive Maximum, 1 here, is of the new connection"
NOT_FOUND = "3.6.2.1, 3.7.2.1: 0x92 says that the identifier is not in use"


@dataclass(frozen=True)
class Difference:
    """
    One step of a scene that two brokers answer differently.

    Args:
        scene: its name.
        step: the step's label.
        ours: what clients of svc-broker see.
        theirs: what clients of Mosquitto see.
        clause: what MQTT 5.0, unless another version is named, says about it.
        versions: the versions in which it is so.
        in_words: what the table on the page says in place of both, where that is shorter.
    """

    scene: str
    step: str
    ours: str
    theirs: str
    clause: str
    versions: tuple[Version, ...] = V5
    in_words: tuple[str, str] | None = None


SCENES = (
    Difference(
        "refused_versions",
        "MQTT level 132",
        "CONNACK 0x01; closed",
        "CONNACK 0x00",
        "MQTT 3.1.1, 3.1.2.2: level 4 and no other; the high bit is Mosquitto's mark of a bridge",
        V311,
    ),
    Difference(
        "refused_versions",
        "MQIsdp level 3",
        "CONNACK 0x01; closed",
        "CONNACK 0x00",
        "MQTT 3.1.1, 3.1.2.1: MQTT 3.1 is another protocol, which svc-broker does not implement",
        V311,
    ),
    Difference("keep_alive", "silent", "DISCONNECT 0x8d; closed", "closed", REASON),
    Difference("second_connect", "second", "DISCONNECT 0x82; closed", "closed", REASON),
    Difference("takeover", "the first sees", "DISCONNECT 0x8e; closed", "closed", "3.1.4 [MQTT-3.1.4-3]: 0x8E is sent"),
    Difference(
        "takeover_with_clean_start",
        "the first sees",
        "DISCONNECT 0x8e; closed",
        "closed",
        "3.1.4 [MQTT-3.1.4-3]: 0x8E is sent",
    ),
    Difference(
        "takeover_and_will",
        "the will",
        "PUBLISH will 'first'",
        "nothing",
        "3.1.2.5, in both versions: every end without DISCONNECT publishes the will",
        BOTH,
    ),
    Difference(
        "takeover_and_end_of_session",
        "the will",
        "PUBLISH will 'late'",
        "nothing",
        "3.1.3.2.2: the end of the session publishes a will that waits",
    ),
    Difference(
        "will_delay",
        "at once: a session that ends with its connection",
        "PUBLISH will/none 'gone'",
        "nothing",
        "3.1.3.2.2: the end of the session publishes a will that waits",
    ),
    *(
        Difference(
            "will_by_reason",
            f"reason 0x{code}",
            f"PUBLISH will '{code}'",
            "nothing",
            "3.14.4 [MQTT-3.14.4-3]: DISCONNECT with reason 0 alone takes the will away",
        )
        for code in ("80", "99")
    ),
    Difference("enhanced_authentication", "AUTH", "DISCONNECT 0x82; closed", "closed", REASON),
    Difference("enhanced_authentication", "re-authentication", "DISCONNECT 0x82; closed", "closed", REASON),
    *(
        Difference(
            "reported_session_expiry",
            f"{seconds} s",
            "CONNACK 0x00 session_expiry=604800",
            "CONNACK 0x00",
            "3.2.2.3.2: a server may keep sessions for less than was asked, and says so",
        )
        for seconds in (0xFFFFFFFE, 0xFFFFFFFF)
    ),
    *(
        Difference(
            "reported_limits",
            f"keep alive {asked}",
            "server_keep_alive=1200, receive_maximum=20, topic_alias_maximum=10, maximum_packet_size=1048576",
            f"server_keep_alive={announced}, receive_maximum=20, topic_alias_maximum=10, maximum_packet_size=1048576",
            "3.2.2.3.14: the server's own longest keep alive",
            in_words=("1200 s are in force", f"{announced or asked} s are in force"),
        )
        for asked, announced in ((0, 65535), (65535, None))
    ),
    Difference(
        "before_its_release",
        "before PUBREL",
        "PUBLISH t 'm' QoS 2 id 1",
        "nothing",
        "4.3.3, in both versions: a message may go on with PUBLISH or with PUBREL",
        BOTH,
    ),
    Difference(
        "before_its_release",
        "after PUBREL",
        "nothing",
        "PUBLISH t 'm' QoS 2 id 1",
        "4.3.3, in both versions: a message may go on with PUBLISH or with PUBREL",
        BOTH,
    ),
    Difference("exactly_once_sent_again", "released again", "PUBCOMP id 9 0x92", "PUBCOMP id 9", NOT_FOUND),
    Difference("answers_to_nothing", "PUBREC", "PUBREL id 77 0x92", "PUBREL id 77", NOT_FOUND),
    Difference("answers_to_nothing", "PUBREL", "PUBCOMP id 77 0x92", "PUBCOMP id 77", NOT_FOUND),
    Difference("puback_for_qos_2", "PUBACK", "DISCONNECT 0x82; closed", "closed", REASON),
    Difference("pubrec_for_qos_1", "PUBREC", "DISCONNECT 0x82; closed", "closed", REASON),
    Difference("pubcomp_before_pubrec", "PUBCOMP", "DISCONNECT 0x82; closed", "closed", REASON),
    Difference(
        "no_subscriber",
        "QoS 2",
        "PUBREC id 1 0x10; PUBCOMP id 1",
        "PUBREC id 1; PUBCOMP id 1",
        "3.5.2.1: a server may say that there is no matching subscription",
    ),
    Difference(
        "receive_maximum_of_the_client",
        "one more",
        "PUBLISH t '2' QoS 1 id 3",
        "PUBLISH t '2' QoS 1 id 3; PUBLISH t '3' QoS 2 id 4",
        "3.3.4 [MQTT-3.3.4-9]: no more in progress than the client's Receive Maximum, which is 2 here",
    ),
    Difference(
        "receive_maximum_of_the_client",
        "PUBCOMP does",
        "PUBLISH t '3' QoS 2 id 4",
        "PUBLISH t '4' QoS 1 id 5",
        "3.3.4 [MQTT-3.3.4-9]: no more in progress than the client's Receive Maximum, which is 2 here",
    ),
    Difference(
        "receive_maximum_of_the_client",
        "after a reconnect",
        "PUBLISH t '2' QoS 1 id 3 DUP; PUBLISH t '3' QoS 2 id 4 DUP",
        "PUBLISH t '2' QoS 1 id 3 DUP; PUBLISH t '3' QoS 2 id 4 DUP; PUBLISH t '4' QoS 1 id 5 DUP",
        "3.3.4 [MQTT-3.3.4-9]: no more in progress than the client's Receive Maximum, which is 2 here",
    ),
    *(
        Difference("smaller_receive_maximum_after_reconnect", step, ours, theirs, MAXIMUM)
        for step, ours, theirs in (
            (
                "one at a time",
                "PUBREL id 2",
                "PUBLISH t '0' QoS 1 id 1 DUP; PUBREL id 2; PUBLISH t '2' QoS 1 id 3 DUP; "
                "PUBLISH t '3' QoS 2 id 4 DUP; PUBLISH t '4' QoS 1 id 5 DUP",
            ),
            ("the next one", "PUBLISH t '2' QoS 1 id 3 DUP", "nothing"),
            (
                "the rest",
                "PUBLISH t '3' QoS 2 id 4 DUP; PUBREL id 4; PUBLISH t '4' QoS 1 id 5 DUP",
                "nothing",
            ),
        )
    ),
    Difference(
        "receive_maximum_of_the_broker",
        "one more",
        "PUBREC id 21 0x10",
        "PUBREC id 21 0x97",
        EXCEEDED,
    ),
    Difference(
        "receive_maximum_of_the_broker",
        "two more",
        "PUBREC id 22 0x10",
        "PUBREC id 22",
        EXCEEDED,
    ),
    Difference(
        "many_unacknowledged",
        "messages",
        "30",
        "20",
        "3.1.2.11.3: without a Receive Maximum it is 65,535; in MQTT 3.1.1 each server chooses",
        BOTH,
    ),
    Difference(
        "retained_and_shared",
        "nothing but the answer",
        "SUBACK 0x02",
        "SUBACK 0x02; PUBLISH t 'm' QoS 1 id 1 retain",
        "3.3.1.3: retained messages are for new subscriptions that are not shared",
        BOTH,
    ),
    Difference(
        "no_local_and_retained",
        "retained",
        "SUBACK 0x01",
        "SUBACK 0x01; PUBLISH t 'own' QoS 1 id 1 retain",
        "3.8.3.1 [MQTT-3.8.3-3]: no message goes back to its publisher; nothing is said of retained ones apart",
    ),
    Difference(
        "overlapping",
        "copies",
        "PUBLISH a/b 'm' QoS 2 id 1; PUBREL id 1",
        "PUBLISH a/b 'm' QoS 2 id 1; PUBLISH a/b 'm'; PUBLISH a/b 'm' QoS 1 id 2; PUBREL id 1",
        "3.3.4: one copy with the highest QoS must be sent, further ones may be",
    ),
    Difference(
        "overlapping_identifiers",
        "copies",
        "PUBLISH a/b 'm' QoS 1 id 1 subscription_identifiers=(1, 2)",
        "PUBLISH a/b 'm' QoS 1 id 1 subscription_identifiers=(2,); "
        "PUBLISH a/b 'm' QoS 1 id 2 subscription_identifiers=(1,)",
        "3.3.4: one copy has all identifiers, several have one each",
    ),
    Difference(
        "shared_by_who_is_there",
        "one left, one stays",
        "[0, 4]",
        "[0, 2]",
        "4.8.2: the server chooses the member; svc-broker prefers who is connected",
        BOTH,
    ),
    Difference(
        "shared_by_who_is_there",
        "one was away",
        "[0]",
        "[2]",
        "4.8.2: the server chooses the member; svc-broker prefers who is connected",
        BOTH,
    ),
    Difference(
        "aliases_out_of_bounds",
        "alias 0",
        "DISCONNECT 0x94; closed",
        "DISCONNECT 0x81; closed",
        "3.3.2.3.4: 0x94 is the reason for an alias of 0",
    ),
    Difference(
        "aliases_of_the_broker",
        "two allowed",
        "a alias 1, alias 1, b alias 2, c, alias 1, c alias 2, alias 2, b",
        "a, a, b, c, a, c, c, b",
        "3.3.2.3.4: a server may send aliases, up to the client's Topic Alias Maximum, which is 2 here",
    ),
    Difference(
        "largest_packet_of_the_broker",
        "1 more",
        "closed",
        "open",
        "2.1.4, 3.2.2.3.6: the fixed header counts as well; Mosquitto leaves it out",
        BOTH,
    ),
    Difference(
        "expiry_at_once",
        "to who is there",
        "nothing",
        "PUBLISH t 'm' QoS 1 id 1",
        "3.3.2.3.3: an interval of 0 has passed at once; Mosquitto takes it for none",
    ),
    Difference(
        "expiry_at_once",
        "to who was away",
        "nothing",
        "PUBLISH u 'm' QoS 1 id 1",
        "3.3.2.3.3: an interval of 0 has passed at once; Mosquitto takes it for none",
    ),
)

#: Packets that break a statement: version, ours, theirs, statements. How often an outcome came is shown where there are
#: several. A statement such as 3.3.1-4 is [MQTT-3.3.1-4]; without a hyphen it is a section.
BROKEN: tuple[tuple[int, str, str, tuple[str, ...]], ...] = (
    (4, "closed", "closed ×15, goes on ×60", ("2.2.2-1", "2.2.2-2")),
    (4, "CONNACK 0x01", "CONNACK 0x01 ×1, closed ×3", ("3.1.2-1",)),
    (4, "CONNACK 0x01", "CONNACK 0x01 ×6, goes on ×1", ("3.1.2-2",)),
    (4, "closed", "goes on", ("3.3.1-2",)),
    (5, "DISCONNECT 0x81 ×60, closed ×15", "closed ×15, goes on ×60", ("2.1.3-1",)),
    (5, "DISCONNECT 0x82", "closed", ("3.1.0-2", "3.14.2-1", "3.15.2-1")),
    (5, "CONNACK 0x01", "CONNACK 0x01 ×1, closed ×3", ("3.1.2-1",)),
    (5, "CONNACK 0x01", "CONNACK 0x01 ×6, goes on ×1", ("3.1.2-2",)),
    (5, "DISCONNECT 0x81", "goes on", ("3.3.1-2", "4.8.2-1")),
    (5, "DISCONNECT 0x81", "DISCONNECT 0x82", ("3.3.2-2", "4.7.0-1")),
    (5, "DISCONNECT 0x81", "closed", ("3.6.1-1", "3.14.1-1", "1.5.7-1", "3.3.2-13", "3.3.2-19", "3.15.1-1")),
    (5, "DISCONNECT 0x82", "DISCONNECT 0x81", ("3.10.3-2", "3.8.3-2", "3.8.3.1")),
    (5, "DISCONNECT 0x81", "DISCONNECT 0x81 ×2, closed ×1, goes on ×1", ("1.5.5-1",)),
    (5, "DISCONNECT 0x94", "DISCONNECT 0x81", ("3.3.2-8",)),
    (5, "DISCONNECT 0x82", "goes on", ("3.3.2-14", "3.3.4-6", "3.4.2-1", "3.5.2-1", "3.6.2-1", "3.7.2-1", "3.8.3-4")),
    (5, "DISCONNECT 0x82", "DISCONNECT 0x81 ×1, closed ×1", ("3.8.2.1.2",)),
    (5, "closed", "goes on", ("3.1.2.11.10",)),
    (5, "DISCONNECT 0x82", "DISCONNECT 0x81 ×2, DISCONNECT 0x82 ×2, closed ×2", ("2.2.1-3",)),
    (5, "DISCONNECT 0x81", "DISCONNECT 0x81 ×2, goes on ×3", ("4.8.2-2",)),
)


def scenes_table() -> str:
    """
    Write the differences of the scenes.

    Returns:
        A Markdown table.
    """
    rows = []
    for each in SCENES:
        ours, theirs = each.in_words or (each.ours, each.theirs)
        versions = " and ".join("5.0" if version is Version.V5 else "3.1.1" for version in each.versions)
        rows.append((f"{each.scene.replace('_', ' ')}: {each.step}", versions, ours, theirs, each.clause))
    return table(("scene", "MQTT", "svc-broker", "Mosquitto", "the standard (MQTT 5.0 unless it says otherwise)"), rows)


def broken_table() -> str:
    """
    Write the differences over packets that break the standard.

    Returns:
        A Markdown table.
    """
    rows = (
        ("5.0" if version == 5 else "3.1.1", ", ".join(numbers), ours, theirs)
        for version, ours, theirs, numbers in BROKEN
    )
    return table(("MQTT", "statements", "svc-broker", "Mosquitto"), rows)


if __name__ == "__main__":
    print(f"{scenes_table()}\n{broken_table()}", end="")
