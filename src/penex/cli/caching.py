"""penex cache: what is kept of the data that were decoded or taken apart."""

import time
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from penex.cli.options import hinted
from penex.lab.ground.errors import LabError

if TYPE_CHECKING:
    from penex.lab.data.cache import Entry


def cache(
    what: Annotated[Literal["show", "check", "clear"], tyro.conf.Positional] = "show",
    entry: Annotated[str | None, tyro.conf.Positional, hinted("[ENTRY]", "(default: all)")] = None,
    /,
) -> None:
    """Show, check or clear what is kept of your data: decoded images, and archives taken apart.

    It lies in PENEX_CACHE, or in penex in the user's cache folder. Past PENEX_CACHE_LIMIT (20GB
    unless you set it) what was not used for longest is removed. All of it can be made again.

    Args:
        what: show what is there, compare it with its checksums, or remove it.
        entry: one of the names that `penex cache` shows.
    """
    from penex.lab.data import cache as store
    from penex.lab.data import sizes

    chosen = store.entries() if entry is None else [store.find(entry)]
    if what == "check":
        _check(chosen)
        return
    if what == "clear":
        total = sum(one.size for one in chosen)
        for one in chosen:
            one.remove()
        left = [one.name for one in chosen if one.path.exists()]
        if left:
            raise LabError(
                f"{left[0]} in {store.root()} could not be removed: may you write there?"
            )
        print(f"{_count(len(chosen))} removed, {sizes.shown(total)}, from {store.root()}.")
        return
    for one in chosen:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.used))
        kind = one.facts["kind"] if one.facts else "of no use: damaged, or of an earlier version"
        print(f"{one.name}\n    {sizes.shown(one.size)}, last used {used}, {kind}")
        for source in one.sources:
            print(f"    from {source}")
    total = sum(one.size for one in chosen)
    limit = sizes.shown(store.limit())
    print(f"{_count(len(chosen))}, {sizes.shown(total)}, in {store.root()}; limit {limit}.")


def _check(chosen: "list[Entry]") -> None:
    wrong = [one for one in chosen if not one.is_as_written()]
    for one in chosen:
        print(f"{one.name}: {'not as it was written' if one in wrong else 'as it was written'}")
    if wrong:
        raise LabError(
            f"{len(wrong)} of {_count(len(chosen))} cannot be used, and will be made again when "
            f"needed. `penex cache clear {wrong[0].name}` removes the first."
        )


def _count(number: int) -> str:
    return "1 entry" if number == 1 else f"{number} entries"
