"""Strings on which tokenizers differ, and a text to train tiny vocabularies on."""

HARD_TEXT = [
    # the plain ones
    "", "a", " ", "\n", "\t", "Hello", " Hello", "Hello world", "Hello, world!", "hello  world", "The quick brown fox.",
    "The cache holds blocks of sixty-four tokens; a prefix never gets a hole.", "unmergeable", " unmergeable zqzq zqzqzq",
    # contractions
    "don't", "I'm you're he'll we've they'd it's", "DON'T I'M YOU'RE HE'LL", "'s", "''s", "'sfoo", "'LLama", "rock 'n' roll",
    "it\u2019s", "'\u017f long s", "'\u017fa", "'re've", "'r", "'", "' '", "a 's", "'l'", "o'Neil's", "'T'tt",
    # digits
    "0", "7 7", "1234567890", "3.14159", "1,000,000", "2026-11-21T05:49:27Z", "x1y22z333", " 12 345", "12 34 5678 90123",
    "\u0661\u0662\u0663", "\u00bd \u00b2 \u2167 \u2460", "\u0967\u0968\u0969", "a1b2", "v0.17.6", "1e-9", "0xDEADBEEF",
    "\U0001d7d8\U0001d7d9", "\u4e00\u4e8c\u4e09",
    # white space
    "  ", "   a", "a   ", "a   b", "\t\ta", "a\tb", "a \tb", "\n\n", "\n\n\n", "a\nb", "a\n\nb", "a \n b", "a\n  b", "  \n  ",
    "a  \n\n  b", "\r\n", "a\r\nb\r\n", "\r\r", "\u00a0a", "a\u00a0 b", "\u3000\u4f60", "\u2003\u2003x", "\u2028a\u2029b",
    "\u0085x", "\x0b\x0cx", "a \u00a0", " \t \t x", "   7", " \n7", "!\n\n!", "!\r\n x", "?!\n", " !\n", "\n !", "\t!", "\t7",
    "\u200b\u200bx", "\ufeffbom", "\x1c\x1dx",
    # punctuation and code
    "...", "!!!???", "($%^&*)", "a_b-c", "#include <vector>", "for (int i = 0; i < 10; ++i) {\n\treturn a[i];\n}",
    "def f(x):\n    return x**2\n\n\nprint(f(3))", "SELECT * FROM t WHERE a='b';", "https://example.org/a?b=c&d=%20#e",
    "{\"key\": [1, 2.5, null]}", "\\n\\t\\\\", "a+b=c", "`code` **bold** __init__", "\u201cquoted\u201d \u2014 dash\u2026",
    "C++20's <=>", "$HOME/.cache", "<html><body class=\"x\"></body></html>", "=====", "-----\n", "/* c */ // d",
    # scripts
    "caf\u00e9", "cafe\u0301", "na\u00efve \u00c5ngstr\u00f6m A\u030angstro\u0308m", "\u1e9e \u00df \u0130 \u0131", "\u4f60\u597d\uff0c\u4e16\u754c\u3002",
    "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c", "\u304c \u304b\u3099", "\uc548\ub155 \u1112\u1161\u11ab", "\u0633\u0644\u0627\u0645 \u062f\u0646\u06cc\u0627", "\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!", "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\u10e5\u10d0\u10e0\u10d7", "\u202eabc\u202c", "x\u0300\u0301\u0302\u0303y",
    "\u2126 \u212b \ufb01 \ufb05", "\u0344 \u0958", "\u01c5 \u02b0 \u00aa", "\U00010330\U00010331", "\U00020000\U0002a6d6",
    # emoji
    "\U0001f600", "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f44d\U0001f3fd", "\U0001f1eb\U0001f1f7\U0001f1e9\U0001f1ea", "\u2764\ufe0f", "a\U0001f600b \U0001f600",
    "1\ufe0f\u20e3", "\U0001f3f4\U000e0067\U000e0062\U000e007f",
    # text of special tokens, which stays text unless parsing is asked for
    "<|im_start|>user\nforged<|im_end|>\n", "<|endoftext|>", "a<|endoftext|>b", " <|im_end|> ", "<|im_start|", "<<|im_end|>>",
    "<|im_end|><|im_end|>", "<repo_name>x<file_sep>", "<|eot_id|><|start_header_id|>system<|end_header_id|>", "<s></s><unk>",
    "<0x41>", "\u2581a\u2581b", "<think>hm</think>", "</think", "</th</think>",
    # control characters and what vocabularies lack
    "\x00", "a\x00b", "\x01\x02\x03", "!\x04!", "a\x04b", "\x7f", "\x1b[31mred", "\u0080\u009f", "\ufffd", "\ufffe\uffff",
    "\ue000", "\U00040000x", "\U0010ffff", "!\U00050000!",
]

# Ill-formed UTF-8: read as errors="replace" reads it.
HARD_BYTES = [
    b"\xff", b"a\xffb", b"\xc3", b"\xc3(", b"\xe2\x82", b"\xe2\x82x", b"\xf0\x9f\x98", b"\xf0\x9f\x98\xf0\x9f\x98\x80",
    b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\x80\x80", b"ok \xe4\xbd end", b"\xf8\x88\x80\x80\x80", b"\xe0\x80\xaf",
    b"\xf1\x80\x80<|im_end|>",
]

HARD = [text.encode() for text in HARD_TEXT] + HARD_BYTES

LONG_RUNS = [("a", 100_000), (" ", 100_000), ("\n", 50_000), ("!", 50_000), ("7", 20_000), ("ab", 30_000),
             ("\u4f60", 20_000), ("\U0001f600", 10_000), ("e\u0301", 10_000), ("a ", 20_000), (" \n", 20_000)]

TRAINING_TEXT = [
    "The cache keeps blocks of keys and values, and the scheduler sends a request to where its prefix already is.",
    "A prompt is cut into words, and each word into the tokens that the vocabulary has for it.",
    "don't can't won't it's that's I'm you're we've they'll he'd she'd",
    "for (int i = 0; i < n; ++i) {\n    total += values[i];\n}\nreturn total;\n",
    "def add(a, b):\n    return a + b\n\n\nclass Thing:\n    pass\n",
    "In 1969, 2001 and 2026 there were 365 days; 1,000,000 is 10**6 and 3.14 is close to pi.",
    "caf\u00e9 na\u00efve r\u00e9sum\u00e9 \u00fcber stra\u00dfe se\u00f1or \u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440 \u043f\u0440\u0438\u0432\u0435\u0442",
    "\u4f60\u597d\u4e16\u754c \u4f60\u597d \u4e16\u754c \u3053\u3093\u306b\u3061\u306f \uc548\ub155 \u0633\u0644\u0627\u0645 \u05e9\u05dc\u05d5\u05dd \U0001f600 \U0001f600",
    "aaaa aaaaaaaa aaaaaaaaaaaaaaaa bbbb abababab    \n\n\n    \t\t  ---- ==== .... !!!!",
    "user assistant system tool \n\n You are a helpful assistant. What is the answer? The answer is here.",
] * 3

POOL = ("abcdefgh ABC  XYZ  \n\n\t\r'''sdtmlrve0123456789.,;:!?()[]{}<>|/_-+=*&^%$#@~`\"\\"
        "\u00e9\u00e8\u00fc\u00df\u0130\u017f\u0301\u0308\u030a\u00a0\u2003\u3000\u2028\u0085\u200b\u200d\ufe0f"
        "\u4f60\u597d\u4e16\u3042\u30ab\u3099\uc548\u1112\u1161\u0633\u0644\u05e9\u05d0\u0928\u094d\u0661\u0967\u00bd\u2167"
        "\U0001f600\U0001f469\U0001f3fd\U0001d7d8\U00020000\x00\x04\x0b\x0c\x1c\x7f\u2581\u2019\u2014")
BITS = ["'s", "'LL", "<|im_end|>", "<think>", "  ", "\n\n", "\r\n", " the", "ing", "1234", "aaaa", "    ", "zqzq"]


def random_text(rng):
    return "".join(rng.choice(POOL) if rng.random() < 0.85 else rng.choice(BITS) for _ in range(rng.randrange(1, 40)))
