"""The tree of subscriptions, compared with matching each filter by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.broker.subscriptions import CACHED_TOPIC_LENGTH, Route, SharedGroup, SubscriptionTree
from svc.wire.mqtt import Subscription, matches, split_shared
from tests.broker.topics import FILTERS, SHARED, TOPICS

CLIENTS = st.sampled_from(["x", "y", "z"])
OPTIONS = st.tuples(st.sampled_from([0, 1, 2]), st.booleans(), st.booleans(), st.sampled_from([None, 1, 2]))
Added = tuple[str, str, tuple[int, bool, bool, int | None]]
Direct = dict[str, tuple[int, bool, bool, tuple[int, ...]]]
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("add"), CLIENTS, FILTERS | SHARED, OPTIONS),
        st.tuples(st.just("remove"), CLIENTS, FILTERS | SHARED, OPTIONS),
    ),
    max_size=25,
)


class Model:
    """Subscriptions in a plain dictionary."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, str], tuple[int, bool, bool, int | None]] = {}

    def direct(self, topic: str) -> Direct:
        """One merged route for each client with a filter that matches."""
        found: Direct = {}
        for (client, wanted), (qos, no_local, keep, identifier) in self.held.items():
            if split_shared(wanted) is not None or not matches(wanted, topic):
                continue
            own = () if identifier is None else (identifier,)
            old = found.get(client)
            found[client] = (
                (qos, no_local, keep, own)
                if old is None
                else (max(old[0], qos), old[1] and no_local, old[2] or keep, tuple(sorted(old[3] + own)))
            )
        return found

    def groups(self, topic: str) -> dict[tuple[str, str], set[str]]:
        """The members of each group whose filter matches."""
        found: dict[tuple[str, str], set[str]] = {}
        for client, wanted in self.held:
            share = split_shared(wanted)
            if share is not None and matches(share.filter, topic):
                found.setdefault((share.group, share.filter), set()).add(client)
        return found


class TreeTests(SynchronousTestCase):
    """Any changes, any topic."""

    @given(CHANGES, st.lists(TOPICS, min_size=1, max_size=5))
    def test_like_matching(
        self, changes: list[tuple[str, str, str, tuple[int, bool, bool, int | None]]], topics: list[str]
    ) -> None:
        """The tree finds who matching one filter after the other finds, after every change, remembered or not."""
        tree: SubscriptionTree[str] = SubscriptionTree(topics=3)
        model = Model()
        for action, client, wanted, (qos, no_local, keep, identifier) in changes:
            if action == "add":
                new = (client, wanted) not in model.held
                made = Subscription(wanted, qos, no_local, keep)  # type: ignore[arg-type]
                self.assertIs(tree.add(client, made, identifier), new)
                model.held[client, wanted] = (qos, no_local, keep, identifier)
            else:
                self.assertIs(tree.remove(client, wanted), model.held.pop((client, wanted), None) is not None)
            self.assertEqual(len(tree), len(model.held))
            for topic in topics:
                self.compare(tree, model, topic)

    def compare(self, tree: SubscriptionTree[str], model: Model, topic: str) -> None:
        """Compare both for one topic."""
        routes = tree.routes(topic)
        direct = {
            each.subscriber: (each.qos, each.no_local, each.retain_as_published, tuple(sorted(each.identifiers)))
            for each in routes.direct
        }
        self.assertEqual(direct, model.direct(topic))
        self.assertEqual(len(routes.direct), len(direct))
        members = sorted(sorted(each.members) for each in routes.groups)
        self.assertEqual(members, sorted(sorted(each) for each in model.groups(topic).values()))

    @given(st.lists(st.tuples(CLIENTS, FILTERS | SHARED), unique=True, max_size=20), TOPICS)
    def test_nothing_is_left(self, pairs: list[tuple[str, str]], topic: str) -> None:
        """What was taken out leaves nothing behind, in whichever order it goes."""
        tree: SubscriptionTree[str] = SubscriptionTree()
        for client, wanted in pairs:
            tree.add(client, Subscription(wanted), None)
        tree.routes(topic)
        for client, wanted in pairs:
            self.assertTrue(tree.remove(client, wanted))
        self.assertEqual((len(tree), tree.routes(topic)), (0, ((), ())))
        self.assertTrue(tree._root.empty)

    def test_cached_routes_are_bounded(self) -> None:
        """Topics without end do not fill the memory."""
        tree: SubscriptionTree[str] = SubscriptionTree(topics=10)
        tree.add("x", Subscription("#"), None)
        for number in range(100):
            self.assertEqual(len(tree.routes(str(number)).direct), 1)
            self.assertLessEqual(len(tree._cache), 10)

    def test_long_topics_are_not_cached(self) -> None:
        """What is remembered is bounded in octets too: a topic may have 65,535."""
        tree: SubscriptionTree[str] = SubscriptionTree()
        tree.add("x", Subscription("#"), None)
        for octets in (CACHED_TOPIC_LENGTH, CACHED_TOPIC_LENGTH + 1):
            self.assertEqual(len(tree.routes("a" * octets).direct), 1)
        self.assertEqual([len(each) for each in tree._cache], [CACHED_TOPIC_LENGTH])

    def test_routes_of_all_topics_are_bounded(self) -> None:
        """Many subscribers of many topics do not multiply; more than the bound for one topic are not remembered."""
        tree: SubscriptionTree[int] = SubscriptionTree(routes=40)
        for number in range(4):
            tree.add(number, Subscription("#"), 1)
        for number in range(12):
            self.assertEqual(len(tree.routes(str(number)).direct), 4)
            self.assertEqual(len(tree._cache), number % 5 + 1)
        for number in range(41):
            tree.add(number, Subscription("many"), None)
        self.assertEqual(len(tree.routes("many").direct), 41)
        self.assertEqual(len(tree._cache), 0)

    def test_many_subscriptions_of_one(self) -> None:
        """Overlapping subscriptions are one route: the best of all of them, with every identifier."""
        tree: SubscriptionTree[str] = SubscriptionTree()
        levels = ["a"] * 20
        for number in range(20):
            tree.add("x", Subscription("/".join([*levels[:number], "#"]), 1, no_local=number > 0), number + 1)
        (route,) = tree.routes("/".join(levels)).direct
        self.assertEqual(route, Route("x", 1, False, False, tuple(range(1, 21))))


class GroupTests(SynchronousTestCase):
    """Whose turn it is."""

    @given(st.integers(1, 6), st.integers(1, 40))
    def test_in_turn(self, members: int, messages: int) -> None:
        """Every member gets as many messages as every other one, give or take one."""
        group: SharedGroup[int] = SharedGroup({each: Route(each, 1, False, False, ()) for each in range(members)})
        first = [next(group.in_turn()).subscriber for _ in range(messages)]
        counts = [first.count(each) for each in range(members)]
        self.assertLessEqual(max(counts) - min(counts), 1)

    def test_everybody_once(self) -> None:
        """All members are offered, the one whose turn it is first."""
        group: SharedGroup[int] = SharedGroup({each: Route(each, 1, False, False, ()) for each in range(3)})
        orders = [[each.subscriber for each in group.in_turn()] for _ in range(3)]
        self.assertEqual(orders, [[0, 1, 2], [1, 2, 0], [2, 0, 1]])
