"""ZeRO 1 to 3 by DeepSpeed, on Ray Train.

    python -m training.jobs.deepspeed --workers 2 --zero-stage 3 --precision bf16

Needs the extra `deepspeed`. For teams that use DeepSpeed; `fsdp2` needs only torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from training.jobs import job
from training.jobs.fit import OnRay, fit
from training.jobs.worker import work
from training.parallel.settings import ZeroSettings
from training.parallel.zero import Zero, lacking
from training.settings import parse


@dataclass(frozen=True)
class Settings(ZeroSettings, OnRay):
    pass


def train_on_ray(config: dict[str, Any]) -> dict[str, Any]:
    settings = Settings(**config)
    return work(settings, partial(Zero, zero=settings))


def main() -> None:
    settings = parse(Settings, "python -m training.jobs.deepspeed", job("deepspeed").summary)
    if not 1 <= settings.zero_stage <= 3:
        raise SystemExit(f"--zero-stage is 1, 2 or 3, not {settings.zero_stage}")
    if why := lacking():
        raise SystemExit(why)
    fit(train_on_ray, settings, "deepspeed")


if __name__ == "__main__":
    main()
