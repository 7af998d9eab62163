"""How to get what is missing: the one place that says it."""


def install(extra: str) -> str:
    """The command that installs an extra of penex, which is on no package index.

    >>> install("lab")
    "pip install '.[lab]' in a clone of penex"
    """
    return f"pip install '.[{extra}]' in a clone of penex"
