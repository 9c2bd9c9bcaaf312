"""TensorBoard always, Weights & Biases where the experiment names a project. The W&B key stays in the environment."""

import hashlib
from pathlib import Path
from typing import Any

from marti_ext.config import Config


class Loggers:
    def __init__(self, config: Config, folder: Path, first_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.board = SummaryWriter(str(folder / "tensorboard"), purge_step=first_step)
        self.wandb = None
        if config.log.wandb_project:
            import wandb

            self.wandb = wandb.init(
                project=config.log.wandb_project,
                name=config.name,
                id=hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16],  # a resumed run goes on in its own
                resume="allow",
                config=config.model_dump(),
            )

    def log(self, line: dict[str, Any]) -> None:
        """One line of metrics.jsonl, every number under its path."""
        numbers = flatten({key: value for key, value in line.items() if key != "step"})
        for path, value in numbers.items():
            self.board.add_scalar(path, value, line["step"])
        self.board.flush()
        if self.wandb:
            self.wandb.log(numbers, step=line["step"])

    def close(self) -> None:
        self.board.close()
        if self.wandb:
            self.wandb.finish()


def flatten(tree: dict[str, Any], at: str = "") -> dict[str, float]:
    """{"a": {"b": 1}} -> {"a/b": 1}; what is not a number is left out."""
    flat = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{at}{key}/")
        elif isinstance(value, int | float):
            flat[f"{at}{key}"] = value
    return flat
