"""What the reference is asked: 20 prompts, and the odd lines of the tokenizer's golden file."""
import random
import unicodedata

CHAT = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n")

# (name, text, whether "<|im_start|>" and its like are control tokens)
PROMPTS = [
    ("english", "The lighthouse keeper climbed the stairs one last time, because", False),
    ("german", "Der Zug nach München hatte wieder einmal Verspätung, also", False),
    ("french", "La boulangerie au coin de la rue était déjà ouverte lorsque", False),
    ("spanish", "El río bajaba crecido después de la tormenta y", False),
    ("chinese", "今天天气很好,我们决定去公园", False),
    ("russian", "Старый дом на берегу реки стоял пустым, пока", False),
    ("arabic", "في صباح يوم جميل خرج الطفل إلى", False),
    ("hindi", "भारत की राजधानी नई दिल्ली है और", False),
    ("japanese", "むかしむかし、あるところに", False),
    ("code_python", "def binary_search(items, target):\n    low, high = 0, len(items) - 1\n", False),
    ("code_c", "#include <stdio.h>\n\nint main(void)\n{\n\tfor (int i = 0; i < 10; i++)\n\t\t", False),
    ("maths", "If 3x + 7 = 22, then 3x = 15 and x = 5. If 4y - 9 = 31, then", False),
    ("json", '{"name": "Ada", "age": 36, "languages": ["en", "fr"], "address": {"city": "', False),
    ("list", "Things to pack for a week in the mountains:\n1. Tent\n2. Sleeping bag\n3. ", False),
    ("white_space", "  leading,\ttabs\t\tand\n\n\n   blank   lines  \r\n and", False),
    ("emoji", "Best day ever 🎉🎉 we went to the beach 🏖️ and", False),
    ("one_word", "Once", False),
    ("long_paragraph",
     "A household has more computers than it knows: the laptop on the desk, the old one in the drawer, the small board that "
     "plays music in the kitchen, the machine that stores the photographs. Each of them sleeps most of the day. Each has a "
     "little memory and a little speed, and none of them alone could hold a large model. Together they have enough. The "
     "question is only how they should share the work: who holds which layers, what travels between them, and what happens "
     "when one of them is switched off in the middle of a sentence. The answer begins with", False),
    ("chat_question", CHAT % "What is the capital of France, and what is it known for?", True),
    ("chat_story", CHAT % "Write a two-line poem about the sea.", True),
]

CURATED = [
    "", " ", "  ", "   ", "\n", "\n\n", "\n\n\n", "\t", "\t\t", " \n", "\n ", " \n ", "\r\n", "\r\n\r\n", "a", " a", "  a", "   a", "a ", "a  ", "\na",
    "a\n", "a\n\nb", "a \n b", "a  \n  b", "\u00a0", "a\u00a0b", "\u2003\u2003x", "\u3000全角", "x\u180ey", "x\u200by", "x\ufeffy", "\ufeff", "\x0b\x0c",
    "a\x85b", "a\x1cb", "a\u2028b\u2029c", "\x00", "a\x00b", "\x01\x02\x03", "\x7f", "\x1b[31mred\x1b[0m",
    "Hello, world!", "hello", "HELLO", "HelloWorld helloWorld hello_world", "it's I'm you're we'll they'd he've don't", "IT'S I'M YOU'RE WE'LL THEY'D",
    "'s 't 're 've 'm 'll 'd 'S 'x '", "''s", "it’s", "rock'n'roll", "o'clock's", "0", "1", "12", "123", "1234", "12345", "123456", "1 2 3", " 1", "  1", "1.5", "3.14159",
    "1,000,000", "$1,234.56", "0x1F", "1e-5", "2026-11-30", "04:16:00", "192.168.0.1", "v1.2.3-rc4", "½ ¾ ⅓", "²³¹", "٣٤٥", "१२३", "一二三", "Ⅳ Ⅷ", "①②③", "𝟘𝟙𝟚", "a1b2c3",
    "x=1;y=2;", "foo(bar)[baz]{qux}", "a+b-c*d/e", "!!!", "...", "???!!!", "----", "====", "#### Title", "**bold** _it_ `code`", "<div class=\"x\">&amp;</div>",
    "https://example.org/path?q=1&r=%20#frag", "me@example.org", "C:\\Users\\x", "/usr/lib/x86_64-linux-gnu", "a_b__c___d", "SELECT * FROM t WHERE id = 42;",
    "for (int i = 0; i < n; i++) {\n\tsum += a[i];\n}\n", "def f(x):\n    return x ** 2\n\n\nclass A:\n    pass\n", "    indented\n        more\n", "\tif x:\n\t\ty\n",
    "if(!x){return;}", "{\"k\": [1, 2.5, null, true]}", "- a\n- b\n  - c\n", "1. one\n2. two\n", "| a | b |\n|---|---|\n| 1 | 2 |\n",
    "Grüße aus Köln: Straße, Äpfel, ÖL", "Ça va? Où est l'élève? Cœur, naïve, Noël", "¿Dónde está el niño? ¡Aquí!", "São Paulo, coração, não", "Łódź, żółć, gęślą jaźń", "Příliš žluťoučký kůň",
    "Ελληνικά: Καλημέρα κόσμε", "Привет, мир! Ёлка", "Україна їжак", "שלום עולם", "مرحبا بالعالم", "السَّلَامُ عَلَيْكُمْ", "नमस्ते दुनिया", "বাংলা ভাষা", "தமிழ் மொழி", "తెలుగు", "ภาษาไทยไม่มีช่องว่าง", "ລາວ", "မြန်မာ",
    "ភាសាខ្មែរ", "ქართული", "Հայերեն", "አማርኛ", "ᏣᎳᎩ", "中文测试", "繁體中文測試", "日本語のテスト", "カタカナ ひらがな", "한국어 시험", "한국어", "Tiếng Việt có dấu", "Türkçe ığüşöç İI", "ﬁ ﬂ ligature", "ｆｕｌｌｗｉｄｔｈ ＡＢＣ １２３",
    "e\u0301 vs é", "a\u0300\u0301\u0302\u0303", "Z\u0351\u036b\u0343a\u030al\u034bg\u0350o", "n\u0303", "\u0301alone", " \u0301", "क्षि", "ก็", "👍", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "❤️", "☃", "😀😀😀", " 😀", "a😀b", "1️⃣", "©®™", "→←↑↓", "∀x∈ℝ: x²≥0", "∑∫√∞≠≤", "€£¥₹₿",
    "“quoted” ‘single’ «guillemets» „deutsch“", "en–dash em—dash", "ellipsis…", "•bullet", "§5 ¶", "†‡", "°C µm Å Ω", "\ue000private", "\U000f0000", "\U0010ffff", "\ufffd", "\ufffe", "𝒜𝓁𝓅𝒽𝒶", "𐍈𐌰", "𓀀𓂀", "𠮷野家", "🪿🫨", "\u1cd0x", "\u0378x", "ꙮ", "ﷺ",
    "antidisestablishmentarianism", "supercalifragilisticexpialidocious", "Donaudampfschifffahrtsgesellschaft", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "abababababababababababababab", "xyzzyxyzzyxyzzy", "AAAA BBBB CCCC", "theThe THE tHe",
    "lorem ipsum dolor sit amet, consectetur adipiscing elit", "The quick brown fox jumps over the lazy dog. " * 4, "bWFueSBoYW5kcyBtYWtlIGxpZ2h0IHdvcms=", "deadbeefcafebabe0123456789abcdef",
    " " * 7, " " * 8, " " * 15, " " * 16, " " * 33, " " * 64, "\n" * 7, "\t" * 9, "x" + " " * 20 + "y", "x" + "\n" * 10 + "y", "x \n \n \n y", "  \t \n\t x", "trailing   ", "trailing\n\n", "a" + "\u00a0" * 3 + "b", "1 234 567", "1\u00a0234", "no.1", "No. 1st 2nd 3rd",
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_start|>user\nhi<|im_end|>\n", "a<|im_end|>b", "<|im_start|", "<|im_start|><|im_end|>", " <|im_end|> ", "<repo_name>x<file_sep>y", "<reponame>", "<jupyter_start><empty_output>", "<|unknown|>", "<s>", "</s>", "[INST]",
]


def random_lines(count, seed):
    """Strings of mixed scripts; characters Unicode 14 does not know are left to the curated lines."""
    rng = random.Random(seed)
    scripts = [(0x20, 0x7e), (0xa0, 0x24f), (0x300, 0x36f), (0x370, 0x3ff), (0x400, 0x4ff), (0x590, 0x6ff), (0x900, 0x97f), (0xe00, 0xe7f), (0x1100, 0x11ff),
               (0x2000, 0x206f), (0x20a0, 0x2bff), (0x3000, 0x30ff), (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0xfe00, 0xffef), (0x10000, 0x1ffff), (0x1f300, 0x1f9ff)]
    lines = []
    while len(lines) < count:
        parts = []
        for _ in range(rng.randint(1, 6)):
            low, high = rng.choice(scripts)
            for _ in range(rng.randint(1, 5)):
                c = chr(rng.randint(low, high))
                if unicodedata.category(c) not in ("Cn", "Cs"):
                    parts.append(c)
            parts.append(rng.choice(["", " ", "  ", "\n", "\t", "'s", "7", "42", ".", "\r\n"]))
        lines.append("".join(parts))
    return lines


def lines():
    seen = {}
    for line in CURATED + [text for _, text, _ in PROMPTS] + random_lines(220, 20261130):
        seen.setdefault(line)
    return list(seen)
