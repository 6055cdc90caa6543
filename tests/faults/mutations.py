"""Ways to spoil a file, for Hypothesis to choose from: a good one with a few places changed, or any bytes at all."""

from __future__ import annotations

import struct

from hypothesis import strategies as st

EXTREMES = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**63 - 1, 2**64 - 1]


@st.composite
def spoiled(draw, good: bytes):
    """`good` after one to four of: a bit flipped, cut, bytes put in, a piece moved, a number made extreme."""
    content = bytearray(good)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(content) - 1)))
        match draw(st.sampled_from(["flip", "cut", "insert", "move", "number", "drop"])):
            case "flip" if content:
                content[place] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del content[place:]
            case "insert":
                content[place:place] = draw(st.binary(max_size=20))
            case "move":
                other = draw(st.integers(0, max(0, len(content) - 1)))
                content[place : place + 30] = content[other : other + 30]
            case "number":
                width, form = draw(st.sampled_from([(1, "B"), (2, "<H"), (4, "<I"), (4, ">I"), (8, "<Q")]))
                value = draw(st.sampled_from(EXTREMES)) % 256**width
                content[place : place + width] = struct.pack(form, value)
            case "drop":
                del content[place : place + draw(st.integers(1, 60))]
    return bytes(content)


def hostile(*good: bytes):
    """Mostly nearly good files; now and then anything."""
    return st.one_of(*(spoiled(g) for g in good), *(spoiled(g) for g in good), st.binary(max_size=300))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=10)
    | st.sampled_from(["cg", "moons", "score", "../../etc/passwd", "\0"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@st.composite
def altered(draw, good):
    """A JSON value with one to three of its places replaced or left out."""
    import copy

    tree = copy.deepcopy(good)
    for _ in range(draw(st.integers(1, 3))):
        node, places = tree, []
        while isinstance(node, dict | list) and node:
            key = draw(st.sampled_from(sorted(node)) if isinstance(node, dict) else st.integers(0, len(node) - 1))
            places.append((node, key))
            node = node[key]
            if draw(st.booleans()):
                break
        if not places:
            return draw(json_values)
        parent, key = places[-1]
        if isinstance(parent, dict) and draw(st.integers(0, 3)) == 0:
            del parent[key]
        else:
            parent[key] = draw(json_values)
    return tree
