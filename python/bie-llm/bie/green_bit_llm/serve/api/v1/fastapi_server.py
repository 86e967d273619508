"""Serves models: `python -m bie.green_bit_llm.serve.api.v1.fastapi_server --model FOLDER`.

The options are those of green-bit-llm 0.2.6, and `bie serve` is the server. A model answers at `/v1/NAME/completions`
and `/v1/NAME/chat/completions`, where NAME is made of its path by `name_of`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import NoReturn

from bie.green_bit_llm.common.model import json_of, say
from bie.llm import ArgumentError, FileError, LanguageModelError, SettingError

#: Options of 0.2.6 that change nothing, and why.
MEANINGLESS = {
    "device": "models run on the CPU",
    "device_map": "models run on the CPU",
    "max_new_tokens": "each request states its max_tokens",
    "temperature": "each request states its own",
    "use_default_chat_template": "the model's chat template is taken where --chat_template gives no other",
    "eos_token": "the model's files name the tokens that end an answer",
    "db_file_path": "answers have no confidence scores",
    "trust_remote_code": "no code of a model is run",
    "env_file": "no variables are read",
}
_FLAGS = ("use_default_chat_template", "trust_remote_code")
_DEVICES = ("device", "device_map")
_ON_THE_CPU = ("auto", "cpu")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Tells a wrong option in one sentence and exits with 2."""
        say(message)
        sys.exit(2)


def _tokens(text: str) -> int:
    if not re.fullmatch(r"0*[1-9][0-9]{0,9}", text):
        raise argparse.ArgumentTypeError(f"expected a number of tokens from 1 on, got {text!r}")
    return int(text)


def setup_arg_parser() -> argparse.ArgumentParser:
    """The options of 0.2.6, of which `MEANINGLESS` change nothing, and --api-key-file of bie serve."""
    parser = _Parser(prog="fastapi_server", description="Serves models of folders over HTTP with bie serve.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: %(default)s)")
    parser.add_argument("--port", default="8000", help="0: one that is free, which is told (default: %(default)s)")
    models = parser.add_mutually_exclusive_group()
    models.add_argument("--model", help="folder or GGUF file of the model; nothing is fetched")
    models.add_argument("--model_list", nargs="+", metavar="MODEL", help="folders or GGUF files of several models")
    parser.add_argument("--chat_template", default="", help="the text of a chat template, in place of the model's own")
    parser.add_argument("--seqlen", type=_tokens, help="tokens of prompt and answer at most (default: the model's)")
    parser.add_argument("--api-key-file", help="file with a key in each line; clients must send one; not in 0.2.6")
    for name, reason in MEANINGLESS.items():
        words = {"action": "store_true"} if name in _FLAGS else {}
        parser.add_argument(f"--{name}", help=f"has no meaning here: {reason}", **words)
    return parser


def name_of(model: str) -> str:
    """The name that a model's path has in URLs, which is that of 0.2.6: slashes become hyphens, letters, digits,
    underscores and single hyphens stay, hyphens at the ends go.

    >>> name_of("GreenBitAI/Qwen-3-1.7B-layer-mix-bpw-4.0")
    'GreenBitAI-Qwen-3-17B-layer-mix-bpw-40'
    """
    kept = "".join(c for c in model.replace("/", "-") if c.isalnum() or c in "-_")
    return re.sub("-+", "-", kept).strip("-")


def named_models(arguments: argparse.Namespace) -> dict[str, str]:
    """The models to serve: paths by their names, in the order of the options.

    Raises:
        ArgumentError: no model, or two of one name, or one whose name is empty.
        FileError: a path that is not there.
    """
    paths = arguments.model_list or ([arguments.model] if arguments.model else [])
    if not paths:
        raise ArgumentError("expected --model or --model_list, got neither")
    named: dict[str, str] = {}
    for path in dict.fromkeys(paths):
        if not os.path.exists(path):
            raise FileError(
                f"expected a folder or a GGUF file on this machine, got {path!r}; nothing is fetched: "
                "huggingface-cli download puts a repository into a folder"
            )
        name = name_of(path)
        if not name:
            raise ArgumentError(f"expected a path with letters or digits, which make the name in URLs, got {path!r}")
        if name in named:
            raise ArgumentError(f"expected models of different names, got {named[name]!r} and {path!r}, both {name!r}")
        named[name] = path
    return named


def context_of(seqlen: int, models: list[str]) -> int:
    """As many tokens of `seqlen` as the folders of all models have positions for."""
    positions = [json_of(Path(model) / "config.json").get("max_position_embeddings") for model in models]
    return min([seqlen, *(each for each in positions if isinstance(each, int))])


def _file_with(text: str) -> str:
    """The path of a file in memory, which the program that takes the place of this one may read."""
    descriptor = os.memfd_create("chat_template", 0)
    os.write(descriptor, text.encode("utf-8", "surrogateescape"))
    return f"/proc/self/fd/{descriptor}"


def serve_words(arguments: argparse.Namespace, models: dict[str, str]) -> list[str]:
    """The words behind `bie` that serve these models."""
    words = ["serve", "--host", arguments.host, "--port", arguments.port]
    for name, path in models.items():
        words += ["--model", f"{name}={path}"]
    if arguments.seqlen is not None:
        words += ["--context", str(context_of(arguments.seqlen, list(models.values())))]
    if arguments.chat_template:
        if len(models) > 1:
            raise ArgumentError(f"expected one model with --chat_template, got {len(models)}")
        words += ["--template", _file_with(arguments.chat_template)]
    if arguments.api_key_file is not None:
        words += ["--api-key-file", arguments.api_key_file]
    return words


def _tell_meaningless(arguments: argparse.Namespace) -> None:
    """One sentence for each option that was given and changes nothing."""
    for name, reason in MEANINGLESS.items():
        value = getattr(arguments, name)
        if value and not (name in _DEVICES and value in _ON_THE_CPU):
            say(f"--{name} has no meaning here: {reason}")


def main(arguments: argparse.Namespace) -> int:
    """Lets `bie serve` take the place of this process, so that signals and the exit code are the server's own.

    Returns:
        1, with a sentence on stderr, where the program or a model is not there or cannot be read.
    """
    _tell_meaningless(arguments)
    try:
        models = named_models(arguments)
        program = shutil.which("bie")
        if program is None:
            raise SettingError("expected the program bie on the PATH, got none; docs/install.md tells how to build it")
        words = [program, *serve_words(arguments, models)]
    except (LanguageModelError, OSError) as error:
        say(str(error))
        return 1
    for name, path in models.items():
        say(f"{path} answers at /v1/{name}/completions and /v1/{name}/chat/completions")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and a program inherits what is ignored.
    try:
        os.execv(program, words)
    except OSError as error:
        say(f"{program} cannot be started: {error.strerror}")
        return 1


if __name__ == "__main__":
    sys.exit(main(setup_arg_parser().parse_args()))
