"""Bundled jobs made small: launched by cockpit's own verb, followed to their end."""

from __future__ import annotations

from cockpit.backends.protocol import Backend
from cockpit.cli.main import main
from cockpit.session import builder
from cockpit.store.run import RunView
from cockpit.store.store import Store

MLP = {"model": "mlp", "width": "8", "epochs": "1", "max_steps": "6"}
GPT = {"model": "gpt-tiny", "data": "synthetic-tokens", "examples": "256", "epochs": "1"}
TWO = {"workers": "2", "gpu": "false"}
TRAINING = {
    "ddp": MLP | TWO,
    "elastic": MLP | TWO | {"min_workers": "1"},
    "fsdp2": GPT | TWO | {"max_steps": "6"},
    "pipeline": GPT | TWO | {"batch_size": "2", "accumulate": "4", "max_steps": "2"},
    "ray_data": MLP | TWO,
}
"""Jobs that leave one run and a checkpoint."""
SEARCH = {
    "space": "learning_rate=choice(1e-3,1e-2)",
    "samples": "2",
    "model": "mlp",
    "width": "8",
    "epochs": "2",
    "workers": "1",
    "gpu": "false",
}


def launch(job: str, settings: dict[str, str], *where: str) -> int:
    """The exit code, once the job is over."""
    given = [f"--set={name}={value}" for name, value in settings.items()]
    return main(["launch", job, "--follow", "--yes", *given, *where])


def ended(backend: Backend, name: str) -> RunView:
    """The run of that name, when its last update has arrived."""
    with builder.session_on(backend) as session:

        def found(store: Store) -> RunView | None:
            return next((run for run in store.runs.values() if run.name == name), None)

        def over(store: Store) -> bool:
            run = found(store)
            return run is not None and run.state.is_over

        assert session.wait(over, 60.0), session.store.runs
        session.drain()
        run = found(session.store)
        assert run is not None
        return run
