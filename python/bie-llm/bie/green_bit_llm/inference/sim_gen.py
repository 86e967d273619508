"""Answers prompts: `python -m bie.green_bit_llm.inference.sim_gen --model FOLDER --prompt TEXT`."""

from __future__ import annotations

import argparse
import sys

from bie.green_bit_llm.common import Model, Tokenizer, generate, load
from bie.green_bit_llm.common.model import say
from bie.green_bit_llm.inference.options import add_shared, tell_meaningless, tokenizer_config
from bie.llm import LanguageModelError


def setup_arg_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sim_gen", description="Answers prompts with a model of a folder.")
    add_shared(parser)
    parser.add_argument("--prompt", help="the prompt; without it prompts are asked for until 'exit'")
    parser.add_argument("--max-tokens", type=int, default=100, help="tokens of an answer, at most")
    parser.add_argument("--temp", type=float, default=0.8, help="0: the likeliest token; more: the larger, the freer")
    parser.add_argument("--top-p", type=float, default=0.95, help="share of the likeliest tokens that is drawn from")
    parser.add_argument("--ignore-chat-template", action="store_true", help="read the prompt as it is")
    parser.add_argument("--use-default-chat-template", action="store_true", help="has no meaning here")
    parser.add_argument("--enable-thinking", action="store_true", help="let the template ask for a thought first")
    return parser


def do_generate(
    arguments: argparse.Namespace, model: Model, tokenizer: Tokenizer, prompt: str, enable_thinking: bool
) -> str:
    """Prints and returns the answer to a prompt, which is a message where the folder has a chat template."""
    if tokenizer.chat_template and not arguments.ignore_chat_template:
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], tokenize=False, enable_thinking=enable_thinking
        )
    return generate(model, tokenizer, prompt, arguments.temp, arguments.max_tokens, True, arguments.top_p)


def main(arguments: argparse.Namespace) -> int:
    tell_meaningless(arguments, "use_default_chat_template")
    try:
        model, tokenizer, _ = load(arguments.model, tokenizer_config(arguments), seqlen=arguments.seqlen)
        if arguments.prompt is not None:
            do_generate(arguments, model, tokenizer, arguments.prompt, arguments.enable_thinking)
            return 0
        while (asked := input("Prompt, or 'exit': ")).lower() not in ("exit", "quit"):
            do_generate(arguments, model, tokenizer, asked, arguments.enable_thinking)
    except EOFError:
        print()
    except LanguageModelError as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(setup_arg_parser().parse_args()))
