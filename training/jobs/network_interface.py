"""Check that every node that may run a worker has the requested network interface."""

from __future__ import annotations

from training.techniques import network


def check(interface: str) -> None:
    """Exits with the interfaces that a node has instead; the ranks would fail repeatedly."""
    if not interface:
        return
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ask = ray.remote(num_cpus=0)(network.interfaces)
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    found = [
        ask.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote()
        for node in nodes
    ]
    for node, there in zip(nodes, ray.get(found), strict=True):
        try:
            network.check(interface, there, node["NodeManagerAddress"])
        except network.NoInterface as why:
            raise SystemExit(str(why)) from None
