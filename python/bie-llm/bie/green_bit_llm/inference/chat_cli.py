"""A conversation: `python -m bie.green_bit_llm.inference.chat_cli --model FOLDER`. `bie chat` is the larger one."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from pathlib import Path

from bie.green_bit_llm.common import Model, Tokenizer, load
from bie.green_bit_llm.common.model import say
from bie.green_bit_llm.inference.options import add_shared, tell_meaningless, tokenizer_config
from bie.llm import LanguageModelError

HELP = "!!exit leaves, !!reset forgets all, !!remove the last turn; !!regen answers anew; !!save FILE, !!load FILE"


def setup_arg_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="chat_cli", description="A conversation with a model of a folder.", epilog=HELP
    )
    add_shared(parser)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="the model runs on the CPU")
    parser.add_argument(
        "--dtype", choices=["float32", "float16"], default="float16", help="float16: products of 8-bit activations"
    )
    parser.add_argument("--conv-template", help="has no meaning here: the folder's chat template is taken")
    parser.add_argument("--conv-system-msg", help="what the model is told before the first message")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--repetition_penalty", type=float, default=1.0)
    parser.add_argument("--max-new-tokens", type=int, default=256)
    parser.add_argument("--no-history", action="store_true", help="answer each message alone")
    parser.add_argument("--style", choices=["simple", "rich"], default="simple", help="both print plain text")
    parser.add_argument("--multiline", action="store_true", help="a message goes on to a line with a point alone")
    parser.add_argument("--mouse", action="store_true", help="has no meaning here")
    parser.add_argument("--judge-sent-end", action="store_true", help="has no meaning here")
    parser.add_argument("--debug", action="store_true", help="print the prompts")
    return parser


def _message(multiline: bool) -> str:
    line = input("user: ")
    if not multiline or line.startswith("!!"):
        return line
    lines = [line]
    while (line := input()) != ".":
        lines.append(line)
    return "\n".join(lines)


class Conversation:
    """Messages, and what the commands do with them."""

    def __init__(self, arguments: argparse.Namespace, model: Model, tokenizer: Tokenizer) -> None:
        self._arguments, self._model, self._tokenizer = arguments, model, tokenizer
        system = arguments.conv_system_msg
        self._first = [] if system is None else [{"role": "system", "content": system}]
        self.messages = list(self._first)

    def answer(self, text: str) -> None:
        if self._arguments.no_history:
            self.messages = list(self._first)
        self.messages.append({"role": "user", "content": text})
        prompt = self._tokenizer.apply_chat_template(self.messages, tokenize=False)
        if self._arguments.debug:
            print(prompt)
        print("assistant: ", end="", flush=True)
        told = ""
        stop = () if self._tokenizer.eos_token is None else (self._tokenizer.eos_token,)
        try:
            for part in self._model.stream(
                prompt.tokens,
                tokens=self._arguments.max_new_tokens,
                temperature=self._arguments.temperature,
                repeat_penalty=self._arguments.repetition_penalty,
                seed=secrets.randbits(63),
                stop=stop,
            ):
                told += part
                print(part, end="", flush=True)
        except LanguageModelError:
            self.messages.pop()
            raise
        finally:
            print()
        self.messages.append({"role": "assistant", "content": told})

    def _remove(self) -> str | None:
        """The last message of the user, which is taken back with its answer."""
        while len(self.messages) > len(self._first):
            if (last := self.messages.pop())["role"] == "user":
                return last["content"]
        return None

    def command(self, words: str) -> bool:
        """Whether the conversation goes on."""
        name, _, path = words.partition(" ")
        if name == "!!exit":
            return False
        if name == "!!reset":
            self.messages = list(self._first)
        elif name == "!!remove":
            self._remove()
        elif name == "!!regen":
            if (text := self._remove()) is None:
                say("!!regen: expected a message before it, got none")
            else:
                self.answer(text)
        elif name == "!!save" and path:
            Path(path).write_text(json.dumps(self.messages, ensure_ascii=False, indent=1), "utf-8")
        elif name == "!!load" and path:
            self.messages = self._loaded(Path(path))
        else:
            say(f"expected a command, got {words!r}; {HELP}")
        return True

    @staticmethod
    def _loaded(path: Path) -> list[dict[str, str]]:
        found = json.loads(path.read_text("utf-8"))
        if not isinstance(found, list) or not all(
            isinstance(m, dict) and isinstance(m.get("role"), str) and isinstance(m.get("content"), str) for m in found
        ):
            raise ValueError(f"{path}: expected a list of messages with role and content, got another value")
        return found


def main(arguments: argparse.Namespace) -> int:
    tell_meaningless(arguments, "conv_template", "mouse", "judge_sent_end")
    if arguments.device != "cpu":
        say(f"--device {arguments.device} has no meaning here: the model runs on the CPU")
    try:
        model, tokenizer, _ = load(
            arguments.model, tokenizer_config(arguments), dtype=arguments.dtype, seqlen=arguments.seqlen
        )
    except LanguageModelError as error:
        say(str(error))
        return 1
    if not tokenizer.chat_template:
        say(f"{arguments.model}: expected a chat template, got none")
        return 1
    conversation = Conversation(arguments, model, tokenizer)
    while True:
        try:
            text = _message(arguments.multiline)
            if text.startswith("!!"):
                if not conversation.command(text):
                    return 0
            elif text.strip():
                conversation.answer(text)
        except EOFError:
            print()
            return 0
        except (OSError, ValueError) as error:  # of files, and of the model
            say(str(error))


if __name__ == "__main__":
    try:
        sys.exit(main(setup_arg_parser().parse_args()))
    except KeyboardInterrupt:
        print()
