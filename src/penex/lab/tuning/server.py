"""A PostgreSQL server that many workers write to: one transaction for many calls, and outages."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from penex.lab.ground.errors import Interrupted
from penex.lab.tuning.storage import Storage, said

Result = TypeVar("Result")

# A worker that is stopped in the middle of a transaction holds others up no longer than this.
_IDLE = "30s"
_IDLE_TOO_LONG = "25P03"  # PostgreSQL's code for that
_AGAIN = 1.0  # seconds between two tries to reach a server


@contextmanager
def transaction(storage: Storage) -> Iterator[tuple[Storage, Any]]:
    """The storage within a transaction, and its connection: all that is written is kept, or none.

    Optuna commits after each call; within an outer transaction these are no more than savepoints.
    """
    import sqlalchemy.orm

    with storage.optuna.engine.begin() as connection:
        connection.execute(
            sqlalchemy.text(f"SET LOCAL idle_in_transaction_session_timeout = '{_IDLE}'")
        )
        sessions = sqlalchemy.orm.sessionmaker(
            bind=connection, join_transaction_mode="create_savepoint"
        )
        # Not by copy.copy, which would open connections of its own.
        inside: Any = object.__new__(type(storage.optuna))
        inside.__dict__.update(vars(storage.optuna))
        inside.scoped_session = sqlalchemy.orm.scoped_session(sessions)
        yield replace(storage, optuna=inside), connection


def is_outage(error: BaseException | None) -> bool:
    """Whether an error says that the server is away, and not that a call was wrong."""
    import sqlalchemy.exc as trouble

    while error is not None:
        if isinstance(
            error, trouble.OperationalError | trouble.InterfaceError | trouble.PendingRollbackError
        ):
            return True
        if isinstance(error, trouble.DBAPIError) and (
            error.connection_invalidated or getattr(error.orig, "sqlstate", None) == _IDLE_TOO_LONG
        ):
            return True
        error = error.__cause__ or error.__context__
    return False


@dataclass
class Patience:
    """Calls that wait for a server that is away, and say so in one line.

    Attributes:
        storage: on the server.
        say: says something to the user.
        stop: whether the user asked to stop: nobody waits any longer then.
    """

    storage: Storage
    say: Callable[[str], None]
    stop: Callable[[], bool]
    _away: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def once(self, act: Callable[[], Result]) -> Result | None:
        """What a call gives; None if the server is away."""
        try:
            found = act()
        except Exception as error:
            if not is_outage(error):
                raise
            self._note(error)
            return None
        self._away = False
        return found

    def __call__(self, act: Callable[[], Result]) -> Result:
        """What a call that does not give None gives, when the server is there."""
        while (found := self.once(act)) is None:
            if self.stop():
                raise Interrupted
            time.sleep(_AGAIN)
        return found

    def _note(self, error: Exception) -> None:
        with self._lock:  # the thread that renews a lease may find out at the same moment
            if self._away:
                return
            self._away = True
        self.say(f"The storage {self.storage.shown} does not answer ({said(error)}): waiting.")
