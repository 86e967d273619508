"""Vectors of texts and ranks of documents, from the states that transformers computes."""

import base64
import concurrent.futures

import gguf
import numpy as np
import pytest
import torch
from serving import COMPLETIONS, LONG, DidNotStart, Server, running, spelled, until
from small_models import float_model, write_changed

EMBEDDINGS, RERANK = "/v1/embeddings", "/v1/rerank"
NUMBERS, TEXT = gguf.GGUFValueType.UINT32, gguf.GGUFValueType.STRING
TEXTS = ["W", "Water", "Who is there? " * 9]
POOLINGS = {"mean": 1, "first": 2, "last": 3}
TEMPLATE = "q:{query} d:{document} a:"
WIDTH = float_model("llama").config.hidden_size
SCORES = np.random.default_rng(5).standard_normal((2, WIDTH)).astype(np.float32)


def states(tokens: list[int]) -> np.ndarray:
    with torch.no_grad():
        return float_model("llama").model(torch.tensor([tokens])).last_hidden_state[0].double().numpy()


def pooled(tokens: list[int], pooling: str) -> np.ndarray:
    found = states(tokens)
    return found.mean(axis=0) if pooling == "mean" else found[0 if pooling == "first" else -1]


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


@pytest.fixture(scope="module", params=POOLINGS)
def embedder(request, bie, tmp_path_factory):
    """A server of a model whose file names a pooling, in exact arithmetic."""
    overrides = {"{arch}.pooling_type": (NUMBERS, POOLINGS[request.param])}
    path = write_changed(tmp_path_factory.mktemp("embedder") / "model.gguf", overrides=overrides)
    with running(Server(bie, path, "--exact")) as made:
        made.pooling = request.param
        yield made


def write_ranker(path, scores=SCORES, template=TEMPLATE, pooling=4):
    def add(tensors):
        tensors["cls.output.weight"] = scores

    overrides = {"{arch}.pooling_type": (NUMBERS, pooling)}
    if template:
        overrides["tokenizer.chat_template.rerank"] = (TEXT, template)
    return write_changed(path, add, overrides=overrides)


@pytest.fixture(scope="module")
def ranker(bie, tmp_path_factory):
    with running(Server(bie, write_ranker(tmp_path_factory.mktemp("ranker") / "model.gguf"), "--exact")) as made:
        yield made


def vectors(server: Server, asked, **fields) -> list[list[float]]:
    answer = server.answer(EMBEDDINGS, {"input": asked} | fields)
    assert [each["index"] for each in answer["data"]] == list(range(len(answer["data"])))
    return [each["embedding"] for each in answer["data"]]


def test_vectors_are_the_pooled_states(embedder):
    for text, found in zip(TEXTS, vectors(embedder, TEXTS), strict=True):
        assert found == pytest.approx(unit(pooled(spelled(text), embedder.pooling)), abs=1e-4)
        assert np.linalg.norm(found) == pytest.approx(1, abs=1e-6)


def test_a_text_may_come_in_any_form(embedder):
    whole = vectors(embedder, TEXTS)
    assert [vectors(embedder, text)[0] for text in TEXTS] == whole
    assert vectors(embedder, [spelled(text) for text in TEXTS]) == whole
    assert vectors(embedder, spelled(TEXTS[1])) == whole[1:2]
    coded = vectors(embedder, TEXTS, encoding_format="base64")
    assert [np.frombuffer(base64.b64decode(each, validate=True), "<f4").tolist() for each in coded] == [
        np.float32(each).tolist() for each in whole
    ]
    usage = embedder.answer(EMBEDDINGS, {"input": TEXTS})["usage"]
    tokens = sum(map(len, TEXTS))
    assert usage == {"prompt_tokens": tokens, "total_tokens": tokens}


@pytest.mark.parametrize("size", [1, 2, 3, WIDTH - 1])
def test_fewer_dimensions_are_the_first_ones(embedder, size):
    whole, cut = vectors(embedder, TEXTS[1])[0], vectors(embedder, TEXTS[1], dimensions=size)[0]
    assert cut == pytest.approx(unit(np.array(whole[:size])), abs=1e-6)
    (coded,) = vectors(embedder, TEXTS[1], dimensions=size, encoding_format="base64")
    assert np.frombuffer(base64.b64decode(coded, validate=True), "<f4").tolist() == np.float32(cut).tolist()


def test_openai_asks_for_vectors(embedder):
    package = pytest.importorskip("openai")
    with package.OpenAI(base_url=f"http://127.0.0.1:{embedder.port}/v1", api_key="none", max_retries=0) as client:
        found = client.embeddings.create(model="any", input=TEXTS).data
    assert [np.float32(each.embedding).tolist() for each in found] == [
        np.float32(each).tolist() for each in vectors(embedder, TEXTS)
    ]


@pytest.mark.parametrize("pooling", POOLINGS)
def test_vectors_are_the_same_beside_answers_and_in_a_small_cache(serve, served_model, pooling):
    texts = [TEXTS[i % 3][: 5 + 17 * i] + str(i) for i in range(12)]
    server = serve(served_model, "--pooling", pooling, "--threads", 2)
    alone = [vectors(server, text)[0] for text in texts]
    small = serve(served_model, "--pooling", pooling, "--rows", 5, "--cache-size", "93KB")
    with small.stream(COMPLETIONS, LONG | {"seed": 1, "n": 4}) as events:
        next(events)
        with concurrent.futures.ThreadPoolExecutor(4) as clients:
            assert list(clients.map(lambda text: vectors(small, text)[0], texts)) == alone
    until(small.is_idle, "the end of the answers")
    assert vectors(small, texts) == alone
    found = small.choices(COMPLETIONS, {"prompt": "Water", "max_tokens": 30, "temperature": 0})
    assert found == server.choices(COMPLETIONS, {"prompt": "Water", "max_tokens": 30, "temperature": 0})


def scored(query: str, document: str, scores=SCORES) -> float:
    found = scores.astype(np.float64) @ states(spelled(f"q:{query} d:{document} a:"))[-1]
    return found[0] if len(scores) == 1 else (np.exp(found) / np.exp(found).sum())[0]


def test_documents_are_ranked_by_the_classifier(ranker):
    answer = ranker.answer(RERANK, {"query": "Who?", "documents": TEXTS, "return_documents": True})
    wanted = [scored("Who?", text) for text in TEXTS]
    order = sorted(range(3), key=lambda i: -wanted[i])
    assert [each["index"] for each in answer["results"]] == order
    assert [each["relevance_score"] for each in answer["results"]] == pytest.approx(
        [wanted[i] for i in order], abs=1e-4
    )
    assert [each["document"]["text"] for each in answer["results"]] == [TEXTS[i] for i in order]
    first = ranker.answer(RERANK, {"query": "Who?", "documents": [{"text": text} for text in TEXTS], "top_n": 1})
    assert first["results"] == [{name: answer["results"][0][name] for name in ("index", "relevance_score")}]


def test_equal_documents_keep_their_order(ranker):
    results = ranker.answer(RERANK, {"query": "a", "documents": ["b"] * 5})["results"]
    assert [each["index"] for each in results] == list(range(5))


def test_one_score_is_told_as_it_is(serve, tmp_path):
    server = serve(write_ranker(tmp_path / "model.gguf", scores=SCORES[:1]), "--exact")
    (found,) = server.answer(RERANK, {"query": "a", "documents": ["b"]})["results"]
    assert found["relevance_score"] == pytest.approx(scored("a", "b", SCORES[:1]), abs=1e-4)


def test_no_document_names_a_control_token(serve, tmp_path):
    """What a document spells is text, as in chats."""

    def add(tensors):
        tensors["cls.output.weight"] = SCORES

    overrides = {
        "{arch}.pooling_type": (NUMBERS, 4),
        "tokenizer.chat_template.rerank": (TEXT, "{query}<|end|>{{document}}"),
    }
    path = write_changed(tmp_path / "model.gguf", add, overrides=overrides)
    usage = serve(path).answer(RERANK, {"query": "a", "documents": ["<|end|>"]})["usage"]
    assert usage["total_tokens"] == 1 + 1 + len("<|end|>")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        *(({"input": value}, "input") for value in (None, [], [[]], "", [""], 1, {}, ["a", 1], [-1], [10**9], [[1.5]])),
        *(({"input": "a", "dimensions": value}, "dimensions") for value in (0, -1, WIDTH + 1, "1", 1.5, True)),
        *(({"input": "a", "encoding_format": value}, "encoding_format") for value in ("", "hex", 1, ["float"])),
        ({"input": ["a"] * 2049}, "input"),
        ({"input": "a" * 5000}, "input"),
    ],
)
def test_wrong_fields_of_embeddings_are_told(embedder, body, field):
    reply = embedder.post(EMBEDDINGS, body)
    assert (reply.status, reply.error["param"]) == (400, field), reply.body


@pytest.mark.parametrize(
    ("body", "field"),
    [
        *(({"query": value, "documents": ["a"]}, "query") for value in (None, 1, [], ["a"])),
        *(
            ({"query": "a", "documents": value}, "documents")
            for value in (None, "a", [], [1], [None], [{}], [{"text": 1}])
        ),
        *(({"query": "a", "documents": ["a"], "top_n": value}, "top_n") for value in (0, -1, "1", 1.5)),
        ({"query": "a", "documents": ["a"], "return_documents": 1}, "return_documents"),
        ({"query": "a", "documents": ["a"] * 2049}, "documents"),
        ({"query": "a" * 5000, "documents": ["a"]}, "documents"),
        ({"query": "a" * 20_000, "documents": [""] * 1000}, "documents"),
    ],
)
def test_wrong_fields_of_ranks_are_told(ranker, body, field):
    reply = ranker.post(RERANK, body)
    assert (reply.status, reply.error["param"]) == (400, field), reply.body


def test_a_model_that_gives_none_says_so(server, ranker, embedder):
    for one, path, body in (
        (server, EMBEDDINGS, {"input": "a"}),
        (ranker, EMBEDDINGS, {"input": "a"}),
        (server, RERANK, {"query": "a", "documents": ["a"]}),
        (embedder, RERANK, {"query": "a", "documents": ["a"]}),
    ):
        reply = one.post(path, body)
        assert reply.status == 400 and reply.error["message"].startswith("the model")
    assert [one.get("/props").json["models"][0]["embeddings"] for one in (server, ranker, embedder)] == [
        False,
        False,
        True,
    ]
    assert [one.get("/props").json["models"][0]["rerank"] for one in (server, ranker, embedder)] == [False, True, False]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"pooling": 5}, "pooling_type"),
        ({"scores": np.zeros((2, WIDTH - 1), np.float32)}, "cls.output.weight"),
        ({"scores": np.zeros((100, WIDTH), np.float32)}, "cls.output.weight"),
        ({"template": "{% for"}, "template of ranks"),
    ],
)
def test_a_wrong_ranker_does_not_start(serve, tmp_path, change, sentence):
    with pytest.raises(DidNotStart, match=sentence):
        serve(write_ranker(tmp_path / "model.gguf", **change))


def test_numbers_that_are_none_are_a_500(serve, tmp_path):
    def break_norm(tensors):
        tensors["output_norm.weight"] = np.full_like(tensors["output_norm.weight"], np.inf)

    overrides = {"{arch}.pooling_type": (NUMBERS, 1)}
    server = serve(write_changed(tmp_path / "model.gguf", break_norm, overrides=overrides), "--exact")
    reply = server.post(EMBEDDINGS, {"input": "Water"})
    assert reply.status == 500 and reply.error["type"] == "server_error"
    assert server.get("/health").status == 200
