"""A PostgreSQL server that many workers write to: how it is reached, and how it is waited for."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penex.installing import install
from penex.lab.ground.errors import Interrupted, LabError
from penex.lab.ground.sentences import without_password

Result = TypeVar("Result")

# A worker that is stopped in the middle of a transaction holds others up no longer than this.
_IDLE = "30s"
_IDLE_TOO_LONG = "25P03"  # PostgreSQL's code for that
_AGAIN = 1.0  # seconds between two tries to reach a server


@dataclass(frozen=True)
class Server:
    """A database on a server.

    Attributes:
        engine: SQLAlchemy's.
        shown: the place in words, without a password.
    """

    engine: Any
    shown: str


def is_server(url: str) -> bool:
    """Whether a URL is that of a PostgreSQL server.

    >>> is_server("postgresql://me@host/name"), is_server("sqlite:///file.db")
    (True, False)
    """
    return re.match(r"postgres(ql)?(\+\w+)?://", url) is not None


def got(url: str) -> str:
    """The end of a sentence on a URL that will not do, which may be none and hold a password.

    >>> got("sqlite:///file.db"), got("me:secret@host/name")
    ('; got sqlite:///file.db.', '.')
    """
    return f"; got {without_password(url)}." if "://" in url else "."


@contextmanager
def opened(url: str) -> Iterator[Server]:
    """A server that answers; whatever goes wrong with it is one sentence."""
    shown = without_password(url)
    with opening(url):
        server = Server(engine_of(url), shown)
        server.engine.connect().close()
    try:
        with trouble(shown):
            yield server
    finally:
        server.engine.dispose()


@contextmanager
def opening(url: str) -> Iterator[None]:
    """Turn whatever a database and its driver raise into one sentence."""
    try:
        yield
    except LabError:
        raise
    except Exception as error:
        shown = without_password(url)
        raise LabError(f"The storage {shown} cannot be opened: {said(error, url)}") from None


@contextmanager
def trouble(shown: str) -> Iterator[None]:
    """Turn what a database raises into one sentence.

    Args:
        shown: the database, without a password.
    """
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith(("sqlalchemy", "psycopg", "optuna")):
            raise
        raise LabError(
            f"The storage {shown} failed: {said(error)} What was told is kept; give the command "
            "again."
        ) from None


def said(error: Exception, url: str = "") -> str:
    """The first line of what a database says, without the password of its URL."""
    cause = error.__cause__ or error  # Optuna wraps what the driver says
    lines = [line for line in str(cause).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return without_password(lines[0], [url])


def with_driver(url: str) -> str:
    """The URL of a database, with the driver of the extra tune if it is PostgreSQL's.

    >>> with_driver("postgresql://me@host/name")
    'postgresql+psycopg://me@host/name'
    """
    return re.sub(r"^postgres(ql)?:", "postgresql+psycopg:", url)


def engine_of(url: str) -> Any:
    """SQLAlchemy's engine for a database."""
    try:
        import sqlalchemy
    except ImportError as error:
        raise LabError(f"A database needs SQLAlchemy and psycopg: {install('tune')}.") from error
    return sqlalchemy.create_engine(with_driver(url), **options(url))


def options(url: str) -> dict[str, Any]:
    """How to connect: to a server that hundreds of workers use, only while there is a question."""
    import sqlalchemy

    if not url.startswith("postgres"):
        return {"pool_pre_ping": True}
    patience = {  # seconds, and milliseconds: a machine that is gone does not say so
        "connect_timeout": 10,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 25_000,
    }
    if not with_driver(url).startswith("postgresql+psycopg"):
        patience = {}  # another driver has other names for them
    asked = {name: value for name, value in patience.items() if f"{name}=" not in url}
    return {"poolclass": sqlalchemy.pool.NullPool, "connect_args": asked}


def call(connection: Any, statement: str, **values: Any) -> Any:
    """What a statement gives."""
    import sqlalchemy

    return connection.execute(sqlalchemy.text(statement), values)


@contextmanager
def transaction(server: Server) -> Iterator[Any]:
    """A connection: all that is written is kept, or none of it."""
    with server.engine.begin() as connection:
        call(connection, f"SET LOCAL idle_in_transaction_session_timeout = '{_IDLE}'")
        yield connection


def lock(connection: Any, name: str) -> None:
    """Keep others that lock the same name waiting, to the end of the transaction."""
    call(connection, "SELECT pg_advisory_xact_lock(hashtext(:name))", name=f"penex {name}")


def make_table(connection: Any, name: str, *statements: str) -> None:
    """Make a table, if it is not there; one worker at a time, to the end of the transaction.

    Args:
        connection: in a transaction.
        name: of the table.
        statements: that make it, and do nothing if another worker just did.
    """
    if call(connection, "SELECT to_regclass(:name)", name=name).scalar() is None:
        lock(connection, "makes tables")
        for statement in statements:
            call(connection, statement)


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
        server: which.
        say: says something to the user.
        stop: whether the user asked to stop: nobody waits any longer then.
    """

    server: Server
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
        self.say(f"The storage {self.server.shown} does not answer ({said(error)}): waiting.")
