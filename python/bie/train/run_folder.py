"""What a run leaves in its folder, as ``bie train`` does: include/bie/train/run_folder.h."""

from __future__ import annotations

import datetime
import json
import math
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from bie._operators import ops
from bie._output_files import replacing, write_text
from bie.checkpoint import packed_state_dict
from bie.train.nets import Net


def save_model(net: Net, path: Path, training_form: bool = False) -> None:
    """A model file that ``bie eval``, ``predict``, ``inspect``, ``export`` and ``report`` read."""
    state = net.state_dict() if training_form else packed_state_dict(net)
    ops.safetensors_write(str(path), list(state), list(state.values()), net.config.text())


def _finite(value: Any) -> Any:
    """NaN as null, which is how a log says that a number is not known."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def epoch_line(epoch: dict[str, Any]) -> str:
    return json.dumps({"schema": 1} | {key: _finite(value) for key, value in epoch.items()}) + "\n"


class RunFolder:
    """config.json, log.jsonl, checkpoint.pt, ranks.json, model.safetensors, and report.html where ``bie`` is there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.model, self.log, self._checkpoint = path / "model.safetensors", path / "log.jsonl", path / "checkpoint.pt"

    @property
    def files(self) -> list[Path]:
        """All that a run writes."""
        names = ("config.json", "log.jsonl", "checkpoint.pt", "model.safetensors", "ranks.json", "report.html")
        return [self.path / name for name in names]

    def check_free(self) -> None:
        for file in self.files:
            if file.exists():
                raise ValueError(
                    f"--run {self.path}: {file} is of a run; --resume goes on with that run, another "
                    "folder is for another one"
                )

    def start(self, config: dict[str, Any], past: list[dict[str, Any]]) -> None:
        """Writes the configuration, and the log of the epochs that a resumed run has behind it."""
        self.path.mkdir(parents=True, exist_ok=True)
        program = {"bie": metadata.version("bitorch_engine") if _installed() else "not installed"}
        program |= {"torch": torch.__version__, "python": platform.python_version()}
        started = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
        whole = {"schema": 1, "command": command_line(), "started": started, **config, "program": program}
        write_text(self.path / "config.json", json.dumps(whole, indent=2, ensure_ascii=False) + "\n")
        write_text(self.log, "".join(map(epoch_line, past)))

    def add(self, epoch: dict[str, Any]) -> None:
        with self.log.open("a") as file:
            file.write(epoch_line(epoch))

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        with replacing(self._checkpoint) as file:
            torch.save(state, file)

    def load_checkpoint(self, device: torch.device) -> dict[str, Any] | None:
        """The newest state, where there is one: any number of ranks reads it."""
        if not self._checkpoint.exists():
            return None
        return torch.load(self._checkpoint, map_location=device, weights_only=True)

    def write_ranks(self, ranks: list[dict[str, Any]]) -> None:
        write_text(self.path / "ranks.json", json.dumps({"schema": 1, "ranks": ranks}, indent=1) + "\n")

    def write_report(self) -> str:
        """Lets the command make the page; what came of it, as a sentence."""
        beside = Path(sys.executable).with_name("bie")
        bie = shutil.which("bie") or (str(beside) if beside.exists() else None)
        if bie is None:
            return f"`bie report {self.path}` makes the run's page; the command is not installed here (bie-cli)"
        done = subprocess.run([bie, "--quiet", "report", str(self.path)], capture_output=True, text=True, check=False)
        if done.returncode:
            return f"`bie report {self.path}` made no page: {done.stderr.strip()}"
        return f"the run's page is {self.path / 'report.html'}"


def _installed() -> bool:
    try:
        metadata.version("bitorch_engine")
    except metadata.PackageNotFoundError:
        return False
    return True


def command_line() -> str:
    """As it was called, without torchrun, which a process does not see."""
    import shlex

    return shlex.join(["python", "-m", "bie.train", *sys.argv[1:]])
