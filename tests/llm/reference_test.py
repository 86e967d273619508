"""bie perplexity against a reference: the numbers of the definition, files of references, and damaged ones."""

import math
import struct
from functools import partial

import numpy as np
import pytest
from llm_library import EXACT, INT8
from net_writer import crc32c
from small_models import VOCABULARY, write_changed

TEXT = "Water boils at 100 degrees. " * 45 + "Ice melts at 0."
HEAD, ROW = 48, 20


@pytest.fixture
def told(answer):
    return partial(answer, "perplexity")


@pytest.fixture
def refused(refusal):
    return partial(refusal, "perplexity")


@pytest.fixture
def model(models):
    return models("llama", "Q4_0")


@pytest.fixture
def other(models):
    return models("llama", "Q8_0")


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture
def saved(told, other, text, tmp_path):
    path = tmp_path / "other.logits"
    told(other, "--data", text, "--context", 64, "--save-logits", path, "--best", 40)
    return path


def log_probabilities(model, tokens: list[int], window: int) -> np.ndarray:
    rows = []
    for begin in range(0, len(tokens) - 1, window):
        logits = model.logits(tokens[begin : begin + window]).astype(np.float64)
        shifted = logits - logits.max(1, keepdims=True)
        rows.append(shifted - np.log(np.exp(shifted).sum(1, keepdims=True)))
    return np.concatenate(rows)[: len(tokens) - 1]


def compared(library, model, other, arithmetic, kept: int) -> dict[str, float]:
    """The definition, in NumPy."""
    mine, its = library.model(model, arithmetic), library.model(other, arithmetic)
    tokens = mine.tokenize(TEXT, special=False, begin=True)
    q, p = log_probabilities(mine, tokens, 64), log_probabilities(its, tokens, 64)
    divergences = []
    for of_q, of_p in zip(q, p, strict=True):
        best = np.argsort(-of_p, kind="stable")[:kept]
        others = np.setdiff1d(np.arange(VOCABULARY), best)
        share_p = np.append(np.exp(of_p[best].astype(np.float16).astype(np.float64)), np.exp(of_p[others]).sum())
        share_q = np.append(np.exp(of_q[best]), np.exp(of_q[others]).sum())
        share_p /= share_p.sum()
        seen = share_p > 0
        divergences.append((share_p[seen] * np.log(share_p[seen] / share_q[seen])).sum())
    places, right = np.arange(len(tokens) - 1), np.array(tokens[1:])
    change = np.exp(q[places, right]) - np.exp(p[places, right])
    return {
        "perplexity": math.exp(-p[places, right].mean()),
        "times": math.exp((p - q)[places, right].mean()),
        "kl_divergence": np.mean(divergences),
        "kl_divergence_99": np.sort(divergences)[math.ceil(0.99 * len(divergences)) - 1],
        "same_choice": (q.argmax(1) == p.argmax(1)).mean(),
        "right_token_change": change.mean(),
        "right_token_change_rms": math.sqrt((change**2).mean()),
    }


def without_intervals(found: dict) -> dict:
    return {key: value for key, value in found.items() if not key.endswith("_interval")}


@pytest.mark.parametrize("kept", [1, 40, VOCABULARY])
@pytest.mark.parametrize("arithmetic", ["int8", "exact"])
def test_numbers_are_those_of_the_definition(told, library, model, other, text, tmp_path, arithmetic, kept):
    path, options = tmp_path / "saved", ["--data", text, "--arithmetic", arithmetic]
    told(other, *options, "--context", 64, "--save-logits", path, "--best", kept)
    found = told(model, *options, "--reference", path)
    assert found["context"] == 64
    wanted = compared(library, model, other, EXACT if arithmetic == "exact" else INT8, kept)
    # A float16 of a logarithm at the edge of two may round to either.
    assert without_intervals(found["reference"]) == pytest.approx(wanted, rel=1e-5, abs=1e-9)


def test_a_model_is_the_file_that_it_would_save(told, model, other, text, tmp_path):
    path = tmp_path / "saved"
    told(other, "--data", text, "--context", 64, "--save-logits", path)
    of_file = told(model, "--data", text, "--reference", path)
    of_model = told(model, "--data", text, "--context", 64, "--reference", other)
    assert of_file["reference"] == of_model["reference"]


def test_a_model_is_at_no_distance_from_itself(told, model, text):
    found = told(model, "--data", text, "--context", 64, "--reference", model)["reference"]
    assert (found["times"], found["same_choice"], found["right_token_change"]) == (1, 1, 0)
    assert found["times_interval"] == [1, 1]
    assert 0 <= found["kl_divergence"] <= 1e-6  # float16 of the reference's logarithms


def test_digits_do_not_depend_on_threads(told, model, text, saved):
    def digits(threads):
        found = told(model, "--data", text, "--reference", saved, "--threads", threads)
        return {key: value for key, value in found.items() if key != "seconds"}

    assert digits(1) == digits(3)


def test_files_do_not_depend_on_threads(told, other, text, saved, tmp_path):
    again = tmp_path / "again"
    told(other, "--data", text, "--context", 64, "--save-logits", again, "--best", 40, "--threads", 3)
    assert again.read_bytes() == saved.read_bytes()
    assert len(again.read_bytes()) == HEAD + 4 * len(TEXT) + (len(TEXT) - 1) * (ROW + 6 * 40)


def test_both_options_at_once(told, model, text, saved, tmp_path):
    found = told(model, "--data", text, "--reference", saved, "--save-logits", tmp_path / "mine")
    assert found["reference"]["same_choice"] < 1
    again = told(model, "--data", text, "--reference", tmp_path / "mine")["reference"]
    assert (again["times"], again["same_choice"]) == (1, 1)


def test_without_json_five_lines_tell_of_the_reference(run, model, text, saved):
    lines = run("perplexity", model, "--data", text, "--reference", saved).stdout.decode().splitlines()
    labels = ["reference", "times that", "KL divergence", "same choice", "right token"]
    assert [line.split("  ")[0] for line in lines[4:]] == labels


def test_another_text_or_window(refused, model, text, saved, tmp_path):
    changed = tmp_path / "changed.txt"
    changed.write_text(TEXT.replace("0.", "1."))
    code, said = refused(model, "--data", changed, "--reference", saved)
    assert code == 3 and f"got another from token {len(TEXT) - 2} on" in said
    code, said = refused(model, "--data", text, "--context", 32, "--reference", saved)
    assert code == 3 and "expected windows of 32 tokens, got 64" in said


def test_a_reference_of_other_tokens(refused, model, text, smollm):
    code, said = refused(model, "--data", text, "--context", 64, "--reference", smollm)
    assert code == 3 and f"expected {VOCABULARY} tokens, as the model has, got 49152" in said


@pytest.mark.parametrize(
    "words, code, sentence",
    [
        (["--best", 8], 2, "--best requires --save-logits"),
        (["--save-logits", "TEXT"], 3, "--save-logits"),
        (["--save-logits", "MODEL"], 3, "--save-logits"),
        (["--save-logits", "SAVED", "--reference", "SAVED"], 3, "--save-logits"),
        (["--save-logits", "nowhere/at/all"], 3, "nowhere"),
        (["--reference", "nowhere"], 3, "nowhere"),
        (["--reference", "TEXT"], 3, "GGUF"),
        (["--save-logits", "x", "--best", 0], 2, "--best"),
    ],
)
def test_wrong_use(refused, model, text, saved, words, code, sentence):
    before = {path: path.read_bytes() for path in (model, text, saved)}
    names = {"TEXT": text, "MODEL": model, "SAVED": saved}
    status, said = refused(model, "--data", text, "--context", 64, *(names.get(word, word) for word in words))
    assert status == code and sentence in said
    assert all(path.read_bytes() == content for path, content in before.items())


def with_checksums(data: bytearray, kept: int = 40) -> bytearray:
    """A hostile file: all checksums fit."""
    (tokens,) = struct.unpack_from("<q", data, 40)
    struct.pack_into("<I", data, 12, 0)
    struct.pack_into("<I", data, 12, crc32c(bytes(data[: HEAD + 4 * tokens])))
    size = ROW + 6 * kept
    at = HEAD + 4 * tokens
    struct.pack_into("<I", data, at + size - 4, crc32c(bytes(data[at : at + size - 4])))
    return data


class TestDamagedFiles:
    @pytest.mark.parametrize("at", [0, 8, 12, 16, 24, 32, 40, 47, HEAD, HEAD + 17, HEAD + 4 * len(TEXT) + 3, -1])
    def test_a_byte(self, refused, model, text, saved, at):
        data = bytearray(saved.read_bytes())
        data[at] ^= 1
        saved.write_bytes(data)
        code, said = refused(model, "--data", text, "--reference", saved)
        assert code == 3 and str(saved) in said

    @pytest.mark.parametrize("size", [0, 5, 8, HEAD - 1, HEAD, HEAD + 4 * len(TEXT), -1])
    def test_cut_short(self, refused, model, text, saved, size):
        saved.write_bytes(saved.read_bytes()[:size])
        code, said = refused(model, "--data", text, "--reference", saved)
        assert code == 3 and str(saved) in said

    @pytest.mark.parametrize(
        "at, value",
        [
            (16, struct.pack("<q", 2**62)),  # vocabulary
            (24, struct.pack("<q", 0)),  # window
            (32, struct.pack("<q", 2**61)),  # kept
            (40, struct.pack("<q", 2**62)),  # tokens
            (40, struct.pack("<q", -1)),
        ],
    )
    def test_sizes_that_lie(self, refused, model, text, saved, at, value):
        data = bytearray(saved.read_bytes())
        data[at : at + 8] = value
        saved.write_bytes(data)
        code, said = refused(model, "--data", text, "--reference", saved)
        assert code == 3 and "damaged" in said

    @pytest.mark.parametrize(
        "at, value",
        [
            (0, struct.pack("<d", math.nan)),
            (8, struct.pack("<d", math.nan)),
            (8, struct.pack("<d", 1e300)),
            (16, struct.pack("<i", -1)),
            (16, struct.pack("<2i", 7, 7)),
            (16, struct.pack("<i", VOCABULARY)),
            (16 + 4 * 40, struct.pack("<e", math.nan)),
            (16 + 4 * 40, struct.pack("<e", 3.0)),
            (16 + 4 * 40, struct.pack("<e", math.inf)),
            (16 + 4 * 40, struct.pack("<40e", *[-math.inf] * 40)),
        ],
    )
    def test_rows_that_lie(self, refused, model, text, saved, at, value):
        data = bytearray(saved.read_bytes())
        first = HEAD + 4 * len(TEXT)
        data[first + at : first + at + len(value)] = value
        if value == struct.pack("<40e", *[-math.inf] * 40):
            data[first + 8 : first + 16] = struct.pack("<d", -math.inf)
        saved.write_bytes(with_checksums(data))
        code, said = refused(model, "--data", text, "--reference", saved)
        assert code == 3 and f"log-probabilities of tokens below {VOCABULARY}, got others at prediction 0" in said

    def test_checksums_are_crc32c(self, saved):
        data = saved.read_bytes()
        assert with_checksums(bytearray(data)) == data


def test_a_model_that_gives_up_leaves_no_file(run, tmp_path, text):
    def spoil(tensors):
        tensors["output_norm.weight"][:] = np.nan

    path = write_changed(tmp_path / "nan.gguf", spoil)
    out = tmp_path / "out.logits"
    process = run("perplexity", path, "--data", text, "--context", 64, "--exact", "--save-logits", out)
    assert process.returncode == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["nan.gguf", "text.txt"]
