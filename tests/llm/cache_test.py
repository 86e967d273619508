"""Pages: those behind a window, those in files, and those that no memory holds."""

import json
import subprocess

import gguf
import numpy as np
import pytest

pytest.importorskip("transformers", reason="transformers is not installed")

import torch
from llm_library import EXACT, F16, F32, INT8, Q8, Error
from small_models import VOCABULARY, write_changed, write_model

TOKENS = torch.randint(0, VOCABULARY, (200,), generator=torch.Generator().manual_seed(8)).tolist()


class TestWindows:
    @pytest.fixture
    def model(self, library, models):
        return library.model(models("windowed mistral"))

    def test_pages_that_nothing_sees_are_given_back(self, model, tmp_path):
        sequence = model.sequence()
        sizes = []
        for at in range(0, 200, 40):
            model.read([(sequence, TOKENS[at : at + 40])])
            sequence.save(tmp_path / f"{at}.kv")
            sizes.append((tmp_path / f"{at}.kv").stat().st_size)
        assert sizes[4] < sizes[1] * 1.2, "two pages at most, however long the text"

    def test_they_change_no_bit(self, model):
        assert np.array_equal(model.logits(TOKENS, [1] * 200), model.logits(TOKENS))

    def test_a_cut_to_where_they_are_wanted_is_refused(self, model):
        sequence = model.sequence()
        model.read([(sequence, TOKENS[:150])])
        model.read([(sequence, TOKENS[150:160])])
        with pytest.raises(Error, match="a length whose next token sees no page before the window"):
            sequence.cut(131)  # its next token sees 127 to 131, and 127 is in the second page
        assert len(sequence) == 160
        sequence.cut(132)
        assert np.array_equal(model.read([(sequence, TOKENS[132:140])]), model.logits(TOKENS[:140])[132:])
        sequence.cut(0)
        assert np.array_equal(model.read([(sequence, TOKENS[:9])]), model.logits(TOKENS[:9]))


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    return crc ^ 0xFFFFFFFF


class TestFiles:
    @pytest.fixture
    def model(self, library, models):
        return library.model(models("llama", "Q8_0"), INT8)

    @pytest.fixture
    def file(self, model, tmp_path):
        """The pages of the first 150 tokens."""
        sequence = model.sequence()
        model.read([(sequence, TOKENS[:150])])
        sequence.save(tmp_path / "a.kv")
        return tmp_path / "a.kv"

    @pytest.mark.parametrize("common", [1, 63, 64, 65, 149, 150])
    def test_the_longest_beginning_in_common_is_kept(self, model, file, common):
        other = [(t + 1) % VOCABULARY for t in TOKENS[common:190]]
        text = TOKENS[:common] + other
        sequence = model.kept(file, text)
        assert len(sequence) == common
        assert np.array_equal(model.read([(sequence, other)]), model.logits(text)[common:])

    def test_the_last_token_is_always_read(self, model, file):
        assert len(model.kept(file, TOKENS[:150])) == 149
        assert len(model.kept(file, TOKENS[:1])) == 0

    def test_no_file_and_nothing_in_common(self, model, file, tmp_path):
        assert len(model.kept(tmp_path / "none.kv", TOKENS)) == 0
        assert len(model.kept(file, [(TOKENS[0] + 1) % VOCABULARY, *TOKENS])) == 0

    def test_a_shorter_text_leaves_the_file(self, model, file):
        before = file.read_bytes()
        sequence = model.sequence()
        model.read([(sequence, TOKENS[:30])])
        sequence.save(file)
        assert file.read_bytes() == before
        model.read([(sequence, [1, 2])])
        sequence.save(file)
        assert len(file.read_bytes()) < len(before)

    @pytest.mark.parametrize("arithmetic, cache", [(EXACT, F32), (EXACT, F16), (EXACT, Q8), (INT8, F32)])
    def test_every_kind_of_cache(self, library, models, tmp_path, arithmetic, cache):
        model = library.model(models("llama", "Q8_0"), arithmetic, cache=cache)
        sequence = model.sequence()
        model.read([(sequence, TOKENS[:70])])
        sequence.save(tmp_path / "a.kv")
        kept = model.kept(tmp_path / "a.kv", TOKENS[:80])
        assert np.array_equal(model.read([(kept, TOKENS[70:80])]), model.logits(TOKENS[:80])[70:])

    def test_a_window(self, library, models, tmp_path):
        model = library.model(models("windowed mistral"))
        sequence = model.sequence()
        for at in range(0, 200, 50):
            model.read([(sequence, TOKENS[at : at + 50])])
        sequence.save(tmp_path / "a.kv")
        kept = model.kept(tmp_path / "a.kv", [*TOKENS, 1, 2])
        assert np.array_equal(model.read([(kept, [1, 2])]), model.logits([*TOKENS, 1, 2])[200:])
        assert len(model.kept(tmp_path / "a.kv", [*TOKENS[:100], 1, 2])) == 0, "what it would see is not there"

    def test_damage_is_found_and_left_as_it_is(self, model, file, tmp_path):
        whole = file.read_bytes()
        rng = np.random.default_rng(3)
        page = (len(whole) - 1024) // 3
        places = [*range(64), *(64 + rng.integers(0, 600, 40)), *(1024 + rng.integers(0, 2 * page, 40)), len(whole) - 1]
        bad = tmp_path / "bad.kv"
        for at in map(int, places):
            damaged = bytearray(whole)
            damaged[at] ^= 1 << int(rng.integers(8))
            bad.write_bytes(damaged)
            with pytest.raises(Error, match=r"cache file .*: (it is damaged|expected)") as error:
                model.kept(bad, TOKENS)
            assert error.value.status == 1
            assert bad.read_bytes() == damaged
        for size in (0, 7, 8, 55, 56, 100, len(whole) - 1):
            bad.write_bytes(whole[:size])
            with pytest.raises(Error, match=r"bad\.kv"):
                model.kept(bad, TOKENS)
        bad.write_bytes(whole + b"\0")
        with pytest.raises(Error, match="damaged"):
            model.kept(bad, TOKENS)

    @pytest.mark.parametrize("field, value", [(f, v) for f in (32, 40, 48) for v in (-1, 0, 2**31, 2**62)])
    def test_lengths_that_lie(self, model, file, field, value):
        """The head's checksum is made to fit: of 56 bytes, 150 tokens, three checksums and zeros to 64 bytes."""
        bytes_ = bytearray(file.read_bytes())
        bytes_[field : field + 8] = value.to_bytes(8, "little", signed=True)
        bytes_[28:32] = bytes(4)
        bytes_[28:32] = crc32c(bytes_[:704]).to_bytes(4, "little")
        file.write_bytes(bytes_)
        if (field, value) == (40, 0):  # which is true
            assert len(model.kept(file, TOKENS)) == 150
            return
        with pytest.raises(Error, match=r"a\.kv"):
            model.kept(file, TOKENS)

    def test_foreign_files_are_named_and_left(self, library, models, model, file, tmp_path):
        write_model(tmp_path / "twin.gguf", "llama", "Q4_0")
        others = {
            "pages of this model, got those of another": library.model(tmp_path / "twin.gguf", INT8),
            "expected arithmetic exact.*got arithmetic int8": library.model(models("llama", "Q8_0"), EXACT, cache=Q8),
            "keys and values of f16, got .* q8": library.model(models("llama", "Q8_0"), INT8, cache=F16),
        }
        before = file.read_bytes()
        for sentence, other in others.items():
            for work in (lambda m: m.kept(file, TOKENS), lambda m: m.sequence().save(file)):
                with pytest.raises(Error, match=sentence):
                    work(other)
        (tmp_path / "b.kv").write_bytes(b"some words")
        with pytest.raises(Error, match="expected the pages of a text, got another file"):
            model.kept(tmp_path / "b.kv", TOKENS)
        assert file.read_bytes() == before

    def test_a_file_that_cannot_be_written(self, model, tmp_path):
        with pytest.raises(Error, match="cache file"):
            model.kept(tmp_path / "no folder/a.kv", TOKENS)
        with pytest.raises(Error, match="cache file"):
            model.sequence().save(tmp_path)


def said(bie, *words) -> dict:
    process = subprocess.run([str(bie), *map(str, words), "--json"], capture_output=True, timeout=120)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def complaint(bie, *words) -> tuple[int, str]:
    process = subprocess.run([str(bie), *map(str, words)], capture_output=True, timeout=120)
    assert process.stdout == b""
    return process.returncode, process.stderr.decode()


def test_generate_reads_the_beginning_once(bie, models, tmp_path):
    model, file = models("llama", "Q8_0"), tmp_path / "story.kv"
    for prompt in ("A long story. " * 12, "A long story. " * 12 + "And then", "A long story. Or", "Another"):
        options = ("generate", model, "--prompt", prompt, "--tokens", 8)
        with_file = said(bie, *options, "--cache", file)
        assert with_file["tokens"] == said(bie, *options)["tokens"]
        assert json.loads(json.dumps(with_file)).keys() == said(bie, *options).keys()
    process = subprocess.run(
        [str(bie), *map(str, options), "--cache", str(file)], capture_output=True, text=True, timeout=60
    )
    assert "the cache file held 6 tokens" in process.stderr


def test_wrong_uses_of_the_cache_file(bie, models, tmp_path):
    model = models("llama", "Q8_0")
    (tmp_path / "lines").write_text("a\nb\n")
    status, words = complaint(bie, "generate", model, "--batch", tmp_path / "lines", "--cache", tmp_path / "a.kv")
    assert status == 2 and "--cache: expected one prompt, as a file keeps that of one, got --batch" in words
    before = model.read_bytes()
    status, words = complaint(bie, "generate", model, "--prompt", "a", "--cache", model)
    assert status != 0 and "--cache" in words
    assert model.read_bytes() == before
    (tmp_path / "b.kv").write_text("some words")
    status, words = complaint(bie, "generate", model, "--prompt", "a", "--cache", tmp_path / "b.kv")
    assert status == 3 and "expected the pages of a text, got another file" in words
    assert (tmp_path / "b.kv").read_text() == "some words"


def test_a_cache_that_no_memory_holds_is_refused(bie, tmp_path):
    overrides = {
        "{arch}.context_length": (gguf.GGUFValueType.UINT32, 1 << 27),
        "tokenizer.chat_template": (gguf.GGUFValueType.STRING, "{{ messages[0].content }}"),
    }
    path = write_changed(tmp_path / "a.gguf", overrides=overrides)
    status, words = complaint(bie, "generate", path, "--prompt", "a", "--exact", "--context", 1 << 27)
    assert status != 0
    assert "GB of memory for the keys and values of 1 prompts and their answers" in words
    status, words = complaint(bie, "chat", path, "--exact", "--context", 1 << 27)
    assert status != 0
    assert "GB of memory for the keys and values of a conversation as long as --context, got" in words
    assert said(bie, "generate", path, "--prompt", "a", "--tokens", 3)["finish"] == "length"
