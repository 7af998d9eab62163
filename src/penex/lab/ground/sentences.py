"""Parts of sentences: counts, names that come from outside, and what must not be said."""

import re
from collections.abc import Iterable, Sequence
from urllib.parse import unquote

_DAYS = 2 * 86_400.0  # seconds: what takes longer is told in days

_PASSWORD = re.compile(r"://[^:/\s]*:(.*)@")
_SETTING = re.compile(r"(\b[^=&?\s]*(?:pass|pwd|secret|token)[^=&\s]*=)[^&\s]*")


def count(number: int, thing: str, things: str = "") -> str:
    """A number of things, in the singular or the plural.

    >>> count(1, "run"), count(3, "run"), count(2, "class", "classes")
    ('1 run', '3 runs', '2 classes')
    """
    return f"{number} {thing if number == 1 else things or thing + 's'}"


def listed(words: Sequence[str]) -> str:
    """Words with commas between them, and an "and" before the last.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def duration(seconds: float) -> str:
    """About how long something takes, in words.

    >>> duration(42), duration(600), duration(9000), duration(10**6)
    ('42 s', '10 min', '2 h 30 min', '12 days')
    """
    if seconds >= _DAYS:
        return f"{seconds / 86_400:.0f} days"
    if seconds < 90:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def visible(text: str) -> str:
    r"""A text from outside, with the characters that would steer a terminal written out.

    >>> print(visible("a\x1b[31mb\n"))
    a\x1b[31mb\n
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def without_password(text: str, known: Iterable[str] = ()) -> str:
    """A text with the passwords of URLs in it hidden.

    Everything from the user's name to the last @ counts as the password, as one with an @ in it was
    perhaps not escaped.

    Args:
        text: what is to be shown.
        known: words that hold URLs; their passwords, and the parts of those around an @ or another
            sign that means something in a URL, are hidden wherever they stand in the text.

    >>> without_password("postgresql://me:p@ss word@host/db?sslpassword=x&host=y")
    'postgresql://me:***@host/db?sslpassword=***&host=y'
    >>> without_password("no host ss@host", ["postgresql://me:p@ss@host/db"])
    'no host ***@host'
    """
    for word in known:
        for secret in _PASSWORD.findall(word):
            for part in sorted(_parts(secret), key=len, reverse=True):
                text = text.replace(part, "***")
    hidden = re.sub(r"(://[^:/\s]*):.*@", r"\1:***@", text)
    return re.sub(_SETTING, r"\1***", hidden)


def _parts(secret: str) -> set[str]:
    """What a reader of URLs may make of a password; a single sign gives nothing away."""
    found = {secret, unquote(secret), *re.split(r"[@:/?#]", secret)}
    return {part for part in found if len(part) > 1}
