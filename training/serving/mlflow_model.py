"""A checkpoint's model in MLflow's format, with its signature and the code that loads it.

`mlflow.pyfunc.load_model` returns a model that takes a NumPy array of examples and returns the
probability of each class: for tokens, of each token that may follow the last one.
"""

from __future__ import annotations

import shutil
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

import training
from training.loop import recipe
from training.loop.progress import COUNTS, MADE
from training.loop.recipe import Made
from training.loop.tracking import without_credentials
from training.parallel.single_device import AVERAGE, MODEL
from training.serving.weights import Weights, fill_from_whole

DATA = "checkpoint"
WEIGHTS = f"data/{DATA}"
"""The directory with the weights, in MLflow's directory of the model."""
PACKAGES = ("torch", "numpy", "pyarrow", "mlflow")
"""What loads the model, besides this code."""
NOT_NEEDED = ("bench", "jobs", "recovery", "search", "__pycache__")
"""Folders of this code that a model does not need."""

Array = np.ndarray[Any, np.dtype[Any]]


def save(weights: Weights, directory: Path) -> None:
    """Write MLflow's directory of the model: weights of evaluation, without the optimizer."""
    import mlflow.pyfunc

    with TemporaryDirectory(prefix="model-") as folder:
        data = Path(folder) / DATA
        data.mkdir()
        write(weights, data)
        own = Path(training.__file__).parent
        code = Path(folder) / own.name
        shutil.copytree(own, code, ignore=shutil.ignore_patterns(*NOT_NEEDED))
        with warnings.catch_warnings():  # it asks for an example, to infer the signature from
            warnings.simplefilter("ignore")
            mlflow.pyfunc.save_model(
                path=str(directory),
                loader_module=__name__,
                data_path=str(data),
                code_paths=[str(code)],
                signature=signature(weights.made),
                # Named here: to infer them, MLflow loads the model in another process.
                pip_requirements=[*requirements(weights.made.model.model)],
                metadata={"model": weights.made.model.model, "step": weights.made.step},
            )


def write(weights: Weights, directory: Path) -> None:
    """Write what `read` reads, with the moving average as the weights."""
    made = weights.made
    described = {
        "data": {
            name: without_credentials(value) if isinstance(value, str) else value
            for name, value in vars(made.data).items()
        },
        "model": vars(made.model),
        "shape": made.shape,
        "classes": made.classes,
    }
    torch.save({"step": made.step, MADE: described}, directory / COUNTS)
    torch.save(weights.model.state_dict(), directory / MODEL)
    torch.save({}, directory / AVERAGE)


def read(directory: Path, name: str, device: torch.device) -> Weights:
    """Raises IncompatibleCheckpoint when it does not describe its model, as one of others."""
    made = recipe.read(directory)
    model = made.build()
    fill_from_whole(model, directory)
    return Weights(name, made, model.to(device).eval())


def signature(made: Made) -> Any:
    """Of a batch of examples of any size; tokens may be fewer than the model was made for."""
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    takes = TensorSpec(np.dtype(np.int64), (-1, -1), "tokens")
    if not made.takes_tokens:
        takes = TensorSpec(np.dtype(np.float32), (-1, *made.shape), "image")
    gives = TensorSpec(np.dtype(np.float32), (-1, made.classes), "probabilities")
    return ModelSignature(inputs=Schema([takes]), outputs=Schema([gives]))


def requirements(model: str) -> tuple[str, ...]:
    """Of the packages that are installed here, without torch's local version."""
    found = []
    for name in (*PACKAGES, *(["torchvision"] if model.startswith("resnet") else [])):
        try:
            found.append(f"{name}=={version(name).partition('+')[0]}")
        except PackageNotFoundError:
            continue
    return tuple(found)


class Predictor:
    """What `mlflow.pyfunc` calls."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights

    @torch.inference_mode()
    def predict(self, inputs: Any, params: Any = None) -> dict[str, Array]:
        """`inputs`: an array, or the one array of a dict."""
        batch = torch.from_numpy(np.asarray(next(iter(inputs.values()), inputs)))
        logits = self._weights.model(batch)
        if self._weights.made.takes_tokens:
            logits = logits[:, -1]
        return {"probabilities": logits.float().softmax(dim=-1).numpy()}


def _load_pyfunc(data_path: str) -> Predictor:
    """Called by MLflow."""
    return Predictor(read(Path(data_path), data_path, torch.device("cpu")))
