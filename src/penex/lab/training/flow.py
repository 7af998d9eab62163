"""How fast images come out of their files, and whether training waits for them."""

import time
from collections.abc import Callable, Iterator

from penex.lab.data import Data
from penex.lab.data.streams import WORKERS
from penex.lab.ground.sentences import count
from penex.lab.records import Json

_BOUND = 0.25  # of the time: who waits longer is held up by the files


class Flow:
    """The images of a run that stay in their files; of other data it has nothing to say.

    Args:
        data: of the run.
        clock: the time in seconds.
    """

    def __init__(self, data: Data, clock: Callable[[], float] = time.monotonic) -> None:
        found = (part.stream for part in (data.train, data.val, data.test))
        self._streams = list({id(one): one for one in found if one is not None}.values())
        self._clock = clock
        self._first = self._last = self._now()

    def _now(self) -> tuple[float, int, float]:
        """The time, the images taken so far, and the time that was spent waiting for them."""
        took = sum(stream.took for stream in self._streams)
        return self._clock(), took, sum(stream.waited for stream in self._streams)

    def epoch(self) -> Json:
        """The pace since the last time, for those who watch: `flow` with two numbers, or nothing.

        It is `images_per_second`, those for validation among them, and `waiting`, the share of time
        in which nothing could be done for lack of images.
        """
        if not self._streams:
            return {}
        last, self._last = self._last, self._now()
        seconds, took, waited = (b - a for a, b in zip(last, self._last, strict=True))
        seconds = max(seconds, 1e-9)
        return {"flow": {"images_per_second": took / seconds, "waiting": waited / seconds}}

    def sentences(self) -> Iterator[str]:
        """What is to be said when the run is over."""
        seconds, _, waited = (b - a for a, b in zip(self._first, self._now(), strict=True))
        if self._streams and waited > _BOUND * seconds:
            yield (
                f"The files were the bound, not the device: {waited / seconds:.0%} of the time "
                f"went to waiting for images. More cores help, or {WORKERS} if some are idle, a "
                "faster disk, or files that are smaller already."
            )
        broken = sum(len(stream.unreadable) for stream in self._streams)
        if broken:
            yield (
                f"{count(broken, 'image')} could not be decoded, and others of the class stood in."
            )


def words(line: Json) -> str:
    """The pace in a line, as the end of a sentence; empty where there is none.

    >>> words({"flow": {"images_per_second": 1234.5, "waiting": 0.04}})
    ', 1,234 images/s, 4% of the time waiting for files'
    """
    if "flow" not in line:
        return ""
    speed, waiting = line["flow"]["images_per_second"], line["flow"]["waiting"]
    return f", {speed:,.0f} images/s, {waiting:.0%} of the time waiting for files"
