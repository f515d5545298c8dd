"""Hypothesis: topics and filters that often match one another."""

from __future__ import annotations

from hypothesis import strategies as st

LEVELS = st.sampled_from(["a", "b", "c", "", "$x", "ä"])
TOPICS = st.one_of(
    st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool),
    st.lists(LEVELS, min_size=1, max_size=3).map(lambda levels: "/".join(["$own", *levels])),
)
_PLAIN = st.lists(st.one_of(LEVELS, st.just("+")), max_size=3)
FILTERS = st.one_of(
    st.tuples(_PLAIN, st.one_of(LEVELS, st.sampled_from("+#"))).map(lambda parts: "/".join([*parts[0], parts[1]])),
    _PLAIN.map(lambda levels: "/".join(["$own", *levels])),
    st.just("$own/#"),
).filter(bool)
SHARED = st.tuples(st.sampled_from(["g", "h"]), FILTERS).map(lambda parts: f"$share/{parts[0]}/{parts[1]}")
