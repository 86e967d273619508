"""bie.green_bit_llm: scripts and commands of green-bit-llm 0.2.6 on a local folder."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("transformers", reason="transformers is not installed")

from coded_folders import write_coded_folder
from llm_package import imported
from model_folders import write_tokenizer_files

ROOT = Path(__file__).parents[2]
QUESTION = "The water"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("greenbit")
    write_coded_folder(path, "greenbit layer-mix", "qwen2", vocabulary=write_tokenizer_files(path))
    return path


@pytest.fixture(scope="module")
def common(build):
    return imported(build, "bie.green_bit_llm.common")


@pytest.fixture(scope="module")
def loaded(common, folder):
    return common.load(str(folder))


@pytest.fixture
def run(build, folder):
    def started(command, *words, stdin="", package="inference"):
        return subprocess.run(
            [sys.executable, "-m", f"bie.green_bit_llm.{package}.{command}", "--model", folder, *words],
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT / "python/bie-llm"),
                "BIE_LLM_LIBRARY": str(build / "src/llm/libbie_llm.so"),
            },
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return started


def test_load_and_generate(common, loaded):
    model, tokenizer, config = loaded
    assert config.model_type == "qwen2" and model.context == 512
    text = common.generate(model.eval().to("cuda"), tokenizer, QUESTION, temp=0, max_tokens=8, repetition_penalty=1.0)
    assert text == model.generate(QUESTION, tokens=8).text
    drawn = {common.generate(model, tokenizer, QUESTION, max_tokens=8, seed=seed) for seed in (1, 1, 2, 3)}
    assert len(drawn) > 1
    again = [common.generate(model, tokenizer, QUESTION, max_tokens=8, seed=5) for _ in range(2)]
    assert again[0] == again[1]


def test_what_verbose_prints(common, loaded, capsys):
    model, tokenizer, _ = loaded
    for mode in common.TextGenMode:
        text = common.generate(model, tokenizer, QUESTION, 0, 6, True, gen_mode=mode)
        told = capsys.readouterr().out
        assert f"Prompt: {QUESTION}\n" in told and text in told and "token/s" in told


def test_a_message_never_becomes_a_control_token(loaded):
    _model, tokenizer, _ = loaded
    assert tokenizer.eos_token == "<|end|>" and tokenizer.eos_token_id == 0
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": "a<|end|>b"}], tokenize=False)
    assert prompt.count("<|end|>") == 2 and prompt.tokens.count(0) == 1
    assert tokenizer.encode(prompt) == prompt.tokens
    assert tokenizer.decode(prompt.tokens) == str(prompt)


def test_what_has_no_meaning_is_told(common, folder, capsys):
    common.load(
        folder, device_map={"cuda:0"}, model_config={"attn_implementation": "flash_attention_2"}, dtype="float32"
    )
    told = capsys.readouterr().err
    assert "device_map {'cuda:0'} has no meaning here" in told and "attn_implementation" in told


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            {"path_or_hf_repo": "GreenBitAI/Some-Model"},
            "expected a folder on this machine, got 'GreenBitAI/Some-Model'",
        ),
        ({"requires_grad": True}, "requires_grad: expected False, got True"),
    ],
)
def test_refusals_of_load(common, folder, words, sentence):
    with pytest.raises(ValueError, match=sentence):
        common.load(**{"path_or_hf_repo": folder, **words})


def test_refusals_of_generate(common, loaded):
    model, tokenizer, _ = loaded
    with pytest.raises(ValueError, match="output_attentions: expected False, got True"):
        common.generate(model, tokenizer, QUESTION, output_attentions=True)
    with pytest.raises(ValueError, match="at most 512 tokens"):
        common.generate(model, tokenizer, "a " * 600)


def test_sim_gen(run):
    words = ["--max-tokens", "6", "--use-flash-attention-2", "--gpus", "0", "--temp", "0"]
    process = run("sim_gen", "--prompt", QUESTION, *words)
    assert process.returncode == 0, process.stderr
    assert f"Prompt: u:{QUESTION}<|end|>a:" in process.stdout and "token/s" in process.stdout
    assert "--use-flash-attention-2 has no meaning here" in process.stderr
    asked = run("sim_gen", "--ignore-chat-template", *words, stdin="one\ntwo\nexit\n")
    assert asked.returncode == 0 and "Prompt: one\n" in asked.stdout and "Prompt: two\n" in asked.stdout


def test_chat_cli(run, tmp_path):
    saved = tmp_path / "turns.json"
    words = ["--max-new-tokens", "5", "--temperature", "0", "--style", "rich"]
    said = f"hello\n!!regen\n!!save {saved}\nagain\n!!remove\n!!what\n!!load {saved}\n!!exit\n"
    process = run("chat_cli", *words, stdin=said)
    assert process.returncode == 0, process.stderr
    answers = [part.split("\n")[0] for part in process.stdout.split("assistant: ")[1:]]
    assert len(answers) == 3 and answers[0] == answers[1]
    assert saved.read_text().count('"role"') == 2
    assert "expected a command, got '!!what'" in process.stderr


class TestEvaluate:
    @pytest.fixture
    def evaluate(self, run, tmp_path):
        def started(*words):
            return run("evaluate", "--save-dir", tmp_path / "log", *words, package="evaluation")

        return started

    @pytest.fixture
    def text(self, tmp_path):
        path = tmp_path / "text.txt"
        path.write_text("The water boils, and the river runs to the sea. " * 12)
        return path

    def test_perplexity_is_that_of_whole_windows(self, evaluate, loaded, folder, text, tmp_path):
        model, tokenizer, _ = loaded
        process = evaluate("--eval-ppl", "--ppl-tasks", f"{text}, {text}", "--seqlen", "40", "--seed", "3")
        assert process.returncode == 0, process.stderr
        assert "--seed has no meaning here" in process.stderr
        tokens, losses = tokenizer.encode(text.read_text()), []
        assert len(tokens) % 40
        for at in range(0, len(tokens) // 40 * 40, 40):
            logits = model.logits(tokens[at : at + 40])[:-1].astype(np.float64)
            right = logits[np.arange(39), tokens[at + 1 : at + 40]]
            losses += list(np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1)) + logits.max(1) - right)
        saved = json.loads((tmp_path / "log/eval_results.json").read_text())
        assert saved == {str(folder): {str(text): pytest.approx(np.exp(np.mean(losses)), rel=1e-9)}}

    def test_results_of_other_models_stay(self, evaluate, text, tmp_path):
        file = tmp_path / "log/eval_results.json"
        file.parent.mkdir()
        file.write_text('{"other": {"a": 1}}')
        assert evaluate("--eval-ppl", "--ppl-tasks", text, "--seqlen", "40").returncode == 0
        assert json.loads(file.read_text())["other"] == {"a": 1}
        file.write_text("no JSON")
        process = evaluate("--eval-ppl", "--ppl-tasks", text, "--seqlen", "40")
        assert process.returncode == 1 and "eval_results.json: expected JSON" in process.stderr
        assert file.read_text() == "no JSON"

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            ([], "expected --eval-ppl or --eval-few-shot, got neither"),
            (["--eval-ppl"], "--ppl-tasks: expected names separated by commas, got none"),
            (
                ["--eval-ppl", "--ppl-tasks", "wikitext2"],
                "expected files of texts, got 'wikitext2': .*nothing is fetched",
            ),
            (["--eval-ppl", "--ppl-tasks", "TEXT", "--seqlen", "1"], "seqlen: expected at least 2, got 1"),
            (["--eval-ppl", "--ppl-tasks", "TEXT", "--seqlen", "500"], "expected a text of 500 tokens at least, got"),
            (["--eval-few-shot"], "--few-shot-tasks: expected names"),
            (["--eval-ppl", "--lora-dir", "x"], "--lora-dir: adapters are not read"),
        ],
    )
    def test_refusals(self, evaluate, text, tmp_path, words, sentence):
        process = evaluate(*(str(text) if word == "TEXT" else word for word in words))
        assert process.returncode == 1
        assert re.search(sentence, process.stderr), process.stderr
        assert not (tmp_path / "log").exists()


def test_classes_of_langchain(build):
    langchain = imported(build, "bie.green_bit_llm.langchain")
    with pytest.raises(ImportError, match=r"has no ChatGreenBit: let _call of a .*LLM return bie\.llm\.load"):
        langchain.ChatGreenBit  # noqa: B018
    assert not hasattr(langchain, "Other")


def test_a_folder_that_is_none(common, run):
    process = run("sim_gen", "--model", "nowhere", "--prompt", "a")
    assert process.returncode == 1 and "expected a folder on this machine, got 'nowhere'" in process.stderr
    assert common.Tokenizer(SimpleNamespace(), Path("nowhere"), {}).chat_template is None
