"""The silent Nodes of a zone, or of a cluster, in step with how widespread their silence is."""

from dataclasses import replace

from lifecycle.known import State
from lifecycle.silence import Standing, is_excused, moved, silent_in
from nodepool.contract.keys import MachineKey, machine_parts
from nodepool.service import Context


def with_areas(before: State, state: State, key: MachineKey, context: Context) -> State:
    """Return the state in which the silent Nodes of a zone or a cluster are in step with it.

    Many change where the silence of the area becomes widespread, or ceases to be so.
    """
    zone, _ = machine_parts(key)
    old, new = _standing(before, key, zone), _standing(state, key, zone)
    if old == new:
        return state
    areas, turned = moved(state.areas, key, old, new)
    state = replace(state, areas=areas)
    for each in {key: True, **dict.fromkeys(silent_in(areas, turned))}:
        state = _excused(state, each, context)
    return state


def _standing(state: State, key: MachineKey, zone: str) -> Standing | None:
    node = state.nodes.get(key)
    return None if node is None else node.standing_in(zone)


def _excused(state: State, key: MachineKey, context: Context) -> State:
    """Return the state with a silent Node, excused if the silence of its area is widespread."""
    node, (zone, _) = state.nodes.get(key), machine_parts(key)
    standing = _standing(state, key, zone)
    if node is None or standing is None or node.health.silence is None:
        return state
    silence = node.health.silence
    is_silent = standing.is_silent and is_excused(state.areas, standing.areas)
    if is_silent is silence.is_excused:
        return state
    after = silence.excused(context.time, is_excused=is_silent)
    node = replace(node, health=replace(node.health, silence=after))
    state = state.with_node(key, node)
    return replace(state, work=state.work.put(key)) if silence.is_lasting else state
