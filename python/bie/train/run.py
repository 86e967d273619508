"""A training on one rank: the loop of ``bie train`` over a process group."""

from __future__ import annotations

import argparse
import math
import os
import socket
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from bie.checkpoint import prepare
from bie.distributed import reducer_of
from bie.nn.state.codes_layer import CodesLayer
from bie.nn.state.quant_layer import QuantLayer
from bie.nn.state.step_size import first_values, take_first_values
from bie.optim import wide_gradients
from bie.train.batches import Batches
from bie.train.data import Dataset, Split, load
from bie.train.nets import Net, build
from bie.train.options import check_use, net_config, recipe
from bie.train.recipe import Optimizers, default_batch
from bie.train.run_folder import RunFolder, save_model

_FIRST_STEPS = 50  # until then the running statistics of BatchNorm are those of the start


def _device(asked: str | None) -> torch.device:
    cuda = torch.cuda.is_available()
    if asked == "cuda" and not cuda:
        raise ValueError("--device cuda: torch finds no GPU here")
    if asked == "cpu" or not cuda:
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    torch.cuda.set_device(device)
    torch.backends.cudnn.deterministic = True
    return device


class Ranks:
    """This process among those of the group; without torchrun it is the only one."""

    def __init__(self, device: torch.device) -> None:
        self.several = int(os.environ.get("WORLD_SIZE", 1)) > 1
        if self.several:
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        self.rank, self.world = (dist.get_rank(), dist.get_world_size()) if self.several else (0, 1)

    def sum(self, numbers: list[float] | Tensor, device: torch.device) -> list[float]:
        """Of each number over the ranks."""
        total = torch.as_tensor(numbers, dtype=torch.float64, device=device)
        if self.several:
            dist.all_reduce(total)
        return total.tolist()

    def gather(self, own: Any) -> list[Any]:
        every: list[Any] = [own]
        if self.several:
            every = [None] * self.world
            dist.all_gather_object(every, own)
        return every

    def close(self) -> None:
        if self.several:
            dist.destroy_process_group()


class Run:
    """Data, net and optimizers of a rank, and where the training stands."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.folder = None if options.run is None else RunFolder(options.run)
        if self.folder is not None and not options.resume and int(os.environ.get("RANK", 0)) == 0:
            self.folder.check_free()
        self.device = _device(options.device)
        self.data: Dataset = load(options.data, options.size, options.fit)
        self.train, self.test = self.data.train.to(self.device), self.data.test.to(self.device)
        self.validation = self.data.validation and self.data.validation.to(self.device)
        count = len(self.train.labels)
        self.batch = min(options.batch or default_batch(count), count)
        config = net_config(options, self.data)
        self.recipe = recipe(options, config)
        torch.manual_seed(options.seed)
        self.net: Net = build(config)
        check_use(options, self.net)
        self.ranks = Ranks(self.device)
        if self.batch < 2 * self.ranks.world:  # of one image BatchNorm knows no variance
            raise ValueError(
                f"--batch: expected at least 2 images for each of {self.ranks.world} ranks, got {self.batch}"
            )
        self._prepare_layers()
        self.net.to(self.device)
        alone = not self.ranks.several
        self.wrapped = self.net if alone else DistributedDataParallel(self.net, broadcast_buffers=False)
        self.batches = Batches(self.train, self.batch, options.augment == "crop-flip", options.seed)
        self.steps = self.batches.per_epoch * options.epochs
        moments = torch.bfloat16 if options.bfloat16_moments else torch.float32
        self.optimizers = Optimizers(
            self.net, self.recipe, self.steps, options.seed, options.renew_scale_every, dtype=moments
        )
        self.step, self.history = 0, []
        self.seconds, self.images = 0.0, 0
        self._sums = torch.zeros(2, dtype=torch.float64, device=self.device)  # losses, right ones of the epoch so far
        self._summed = 0
        self._begun = time.perf_counter()  # the epoch

    def _prepare_layers(self) -> None:
        options = self.options
        self.layers = {n: p for n, p in self.net.products().items() if isinstance(p, QuantLayer)}
        for layer in self.layers.values():
            layer.step_size_floor = options.step_floor
            layer.compat = options.compat
            if options.compat == "none":
                layer.grad_mode = options.gradients or "exact"
            if layer._bits == 1 and options.freeze_binary:
                layer.weight_trainable = False
        prepare(self.net)
        self.norms = [m for m in self.net.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]
        if options.wide_gradients:
            wide_gradients(self.net)
        signs = {name: layer for name, layer in self.layers.items() if layer._bits == 1}
        self._negative = {name: layer.weight.detach() < 0 for name, layer in signs.items()}

    def say(self, text: str) -> None:
        if self.ranks.rank == 0:
            print(f"info: {text}", flush=True)

    def _same(self) -> dict[str, Any]:
        """What has to be the same for a run to go on."""
        apart = {"run", "out", "resume", "checkpoint_every", "device", "training_form"}
        same = {name: value for name, value in vars(self.options).items() if name not in apart | {"net"}}
        return same | {"layers": self.net.config.layers}

    def resume(self) -> None:
        """Goes on from the folder's checkpoint, where there is one."""
        state = self.folder.load_checkpoint(self.device)
        if state is None:
            return
        theirs = {"precision": "float32"} | state["options"]  # older runs had no other
        for name, value in self._same().items():
            if theirs.get(name) != value:
                raise ValueError(f"{self.folder.path} is of a run with {name} {theirs.get(name)}, not {value}")
        self.net.load_state_dict(state["model"])
        self.optimizers.load_state_dict(state["optimizers"])
        take_first_values(self.net, state.get("first_values", {}))
        self.step, self.history = state["step"], state["history"]
        if (epoch := state.get("epoch")) is not None:
            self._summed, self._begun = epoch["steps"], time.perf_counter() - epoch["seconds"]
            if self.ranks.rank == 0:  # the sums are those of all ranks
                self._sums.copy_(torch.tensor(epoch["sums"], dtype=torch.float64))
        self.say(f"goes on after step {self.step}")

    def save(self) -> None:
        if self.folder is None:
            return
        epoch = {"sums": self.ranks.sum(self._sums, self.device), "steps": self._summed}
        epoch["seconds"] = time.perf_counter() - self._begun
        if self.ranks.rank != 0:
            return
        state = {"model": self.net.state_dict(), "optimizers": self.optimizers.state_dict()}
        state |= {"first_values": first_values(self.net), "epoch": epoch}
        self.folder.save_checkpoint(state | {"step": self.step, "history": self.history, "options": self._same()})

    def start(self) -> None:
        """Says what is trained, and begins the folder."""
        data, options = self.data, self.options
        counts = {"train": len(self.train.labels), "test": len(self.test.labels)}
        counts["validation"] = 0 if self.validation is None else len(self.validation.labels)
        for note in data.notes:
            self.say(note)
        validation = f", {counts['validation']} validation" if self.validation else ""
        self.say(f"{data.name}: {counts['train']} training{validation} and {counts['test']} test images")
        if self.folder is None or self.ranks.rank != 0:
            return
        recipe = {"epochs": options.epochs, "batch": self.batch, "patience": options.patience}
        recipe |= {"augment": options.augment} | vars(self.recipe) | {"seed": options.seed}
        about = {"name": data.name, "spec": options.data}
        for word in ("samples", "images"):  # "images" is the older name, which schema 1 keeps
            about |= {f"{part}_{word}": count for part, count in counts.items()}
        about["classes"] = data.classes
        config = {"data": about, "model": self.net.config.json(), "recipe": recipe, "device": str(self.device)}
        self.folder.start(config, self.history)

    def train_all(self) -> None:
        if self._summed == 0:
            self._begun = time.perf_counter()
        every = self.options.checkpoint_every
        while self.step < self.steps and not self._out_of_patience():
            self.train_step()
            ends = self.step % self.batches.per_epoch == 0
            if ends:
                self._end_of_epoch()
            if self.step % every == 0 if every else ends:
                self.save()

    def train_step(self) -> None:
        begun = time.perf_counter()
        images, labels = self.batches.of_step(self.step, self.ranks.rank, self.ranks.world)
        self.optimizers.zero_grad()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.options.precision == "bfloat16"):
            logits = self.wrapped(images).float()
        loss = nn.functional.cross_entropy(logits, labels)
        loss.backward()
        self.optimizers.step(self.step)
        self.step += 1
        every = self.options.renew_scale_every
        if every and self.step % every == 0:
            for layer in self.layers.values():
                if isinstance(layer, CodesLayer):
                    layer.renew_weight_scale()
        right = (logits.detach().argmax(1) == labels).sum()
        self._sums += torch.stack((loss.detach().double(), right.double()))
        self._summed += 1
        self.images += len(labels)
        self.seconds += time.perf_counter() - begun

    def accuracy(self, part: Split) -> float:
        """Share of the part's images that the net names rightly; a rank looks at its share of them.

        Running statistics, each rank's own in training, are then rank 0's on all ranks.
        """
        if self.ranks.several:
            for norm in self.norms:
                for buffer in norm.buffers():
                    dist.broadcast(buffer, 0)
        self.net.eval()
        own = torch.arange(len(part.labels), device=self.device).tensor_split(self.ranks.world)[self.ranks.rank]
        right = 0
        with torch.no_grad():
            for places in own.split(500):
                right += int((self.net(part.images[places]).argmax(1) == part.labels[places]).sum())
        self.net.train()
        return self.ranks.sum([right], self.device)[0] / len(part.labels)

    def _scores(self) -> list[float]:
        """Of the epochs: by the validation images where there are any."""
        judge = "test_accuracy" if self.validation is None else "validation_accuracy"
        return [epoch[judge] for epoch in self.history]

    def _out_of_patience(self) -> bool:
        """As bie::train::out_of_patience: epochs that end in the first steps do not count."""
        patience, scores = self.options.patience, self._scores()
        if not patience or not scores:
            return False
        since = self.history[scores.index(max(scores)) + 1 :]
        return sum(epoch["step"] > _FIRST_STEPS for epoch in since) >= patience

    def _end_of_epoch(self) -> None:
        loss, right = self.ranks.sum(self._sums, self.device)
        loss /= self._summed * self.ranks.world
        if not math.isfinite(loss):
            raise ValueError(f"training diverged: the loss is {loss} after step {self.step}, nothing is saved")
        factor = self.recipe.factor(self.step - 1, self.steps)
        integer_rate = self.recipe.integer_lr * factor if self.optimizers.moves_integers else math.nan
        codes = {name: layer for name, layer in self.layers.items() if layer._bits > 1}
        flipped = {
            name: float(((self.layers[name].weight < 0).cpu() != start).double().mean())
            for name, start in self._negative.items()
        }
        epoch = {
            "epoch": self.step // self.batches.per_epoch,
            "step": self.step,
            "loss": loss,
            "train_accuracy": right / (self._summed * self.batch),
            "test_accuracy": self.accuracy(self.test),
            "validation_accuracy": math.nan if self.validation is None else self.accuracy(self.validation),
            "rate": self.recipe.lr * factor,
            "integer_rate": integer_rate,
            "seconds": time.perf_counter() - self._begun,
            "step_sizes": {name: float(layer.scale_a.detach()) for name, layer in codes.items()},
            "flipped": flipped,
        }
        self.history.append(epoch)
        self._sums.zero_()
        self._summed, self._begun = 0, time.perf_counter()
        validation = f"validation accuracy {100 * epoch['validation_accuracy']:.2f} %, " if self.validation else ""
        self.say(
            f"epoch {epoch['epoch']}/{self.options.epochs}: loss {loss:.4f}, {validation}test accuracy "
            f"{100 * epoch['test_accuracy']:.2f} %, rate {epoch['rate']:.2e}, {epoch['seconds']:.1f} s"
        )
        if self.folder is not None and self.ranks.rank == 0:
            self.folder.add(epoch)

    def finish(self) -> None:
        """Compares the ranks, and saves model and report."""
        if self.ranks.several and (reducer := reducer_of(self.wrapped)) is not None:
            reducer.check()
            self.say(f"the integer weights of {self.ranks.world} ranks are the same")
        if self.step < self.steps:
            scores = self._scores()
            self.say(f"stopped early: the best of {len(scores)} epochs was epoch {scores.index(max(scores)) + 1}")
        own = {"rank": self.ranks.rank, "host": socket.gethostname(), "device": str(self.device)}
        ranks = self.ranks.gather(own | {"images": self.images, "seconds": round(self.seconds, 3)})
        self.say(f"test accuracy {100 * self.accuracy(self.test):.2f} %")
        if self.ranks.rank == 0:
            self._save_models()
            if self.folder is not None:
                self.folder.write_ranks(ranks)
                self.say(self.folder.write_report())
        self.ranks.close()

    def _save_models(self) -> None:
        paths = [self.folder.model] if self.folder is not None else []
        for path in [*paths, *([self.options.out] if self.options.out is not None else [])]:
            save_model(self.net, path, self.options.training_form)
            self.say(f"saved to {path}")
