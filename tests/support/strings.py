"""Strings of many scripts, emoji, code, controls and spaces."""

import random

RANGES = {
    **{"latin": (0x20, 0x17F), "greek": (0x370, 0x3FF), "cyrillic": (0x400, 0x4FF), "hebrew": (0x590, 0x5F4)},
    **{"arabic": (0x600, 0x6FF), "devanagari": (0x900, 0x97F), "thai": (0xE00, 0xE5B), "hangul": (0xAC00, 0xD7A3)},
    **{"kana": (0x3040, 0x30FF), "han": (0x4E00, 0x9FFF), "emoji": (0x1F300, 0x1F6FF), "maths": (0x2200, 0x22FF)},
    **{"marks": (0x300, 0x36F), "spaces": (0x2000, 0x200F), "controls": (0, 0x1F), "any": (0x20, 0xD7FF)},
}
PIECES = [
    *["'s", "'S", "'ll", "'LL", "'re", " 's", "it's", "I'M", "\u2019s", "'\u017f", "123", "1234567", "3.14", " 42"],
    *["\u0663\u0664", "\u00bd", "\u2167", "  ", "   x", " \n", "\n\n", "\r\n", "\t\t", "\u00a0", "\u0085"],
    *["\u180e", "\u3000", "\u200b", "\ufeff", "\u2028", "def f(x):\n    return x**2", '{"a": [1, 2]}', "<b>x</b>"],
    *["https://a.b/c?d=e#f", "C++", "x=y;//", "/* */", "$HOME", "\U0001f469\u200d\U0001f469\u200d\U0001f467"],
    *["\U0001f1eb\U0001f1f7", "\u00e9", "e\u0301", "\ufb01", "\u0130", "Stra\u00dfe", "na\u00efve", "日本語", "한국어"],
    *["ไทย", "हिन्दी", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_", "|>", "user", " assistant"],
]


def strings(count: int) -> list[str]:
    rng = random.Random(7)
    found = ["", " ", "a", *PIECES]
    while len(found) < count:
        parts = []
        for _ in range(rng.randint(1, 12)):
            if rng.random() < 0.4:
                parts.append(rng.choice(PIECES))
            else:
                low, high = RANGES[rng.choice(list(RANGES))]
                parts.append("".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 8))))
            parts.append(rng.choice(["", "", " ", "  ", "\n"]))
        found.append("".join(parts))
    return found
