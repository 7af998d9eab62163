"""Whether workers can share studies and runs in a database: a part of `penex doctor`."""

import time

from penex.lab.ground.errors import LabError
from penex.lab.ground.sentences import count, without_password
from penex.lab.workers.server import engine_of, got, is_server, opening

_SERVER = """
SELECT current_setting('server_version'), current_setting('max_connections')::int,
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
    extract(epoch FROM clock_timestamp())::float8,
    to_regclass('penex_leases') IS NOT NULL, to_regclass('penex_parcels') IS NOT NULL"""
_WORKERS = "SELECT count(*) FROM penex_leases WHERE expires > clock_timestamp()"
_KEPT = """
SELECT count(*), pg_size_pretty(pg_total_relation_size('penex_parcels')) FROM penex_comparisons"""
_RIGHTS = """
SELECT tablename FROM pg_tables
WHERE schemaname = current_schema() AND tablename IN (
        'studies', 'trials', 'penex_leases', 'penex_comparisons', 'penex_parcels')
    AND NOT (has_table_privilege(quote_ident(tablename), 'INSERT')
        AND has_table_privilege(quote_ident(tablename), 'UPDATE'))"""


def report(url: str) -> str:
    """What `penex doctor --storage` says of a database; a LabError if it will not do."""
    if not is_server(url):
        raise LabError(
            "Several workers share studies and runs on a PostgreSQL server only, as "
            f"postgresql://user@host/name{got(url)}"
        )
    shown = without_password(url)
    with opening(url):
        engine = engine_of(url)
        import sqlalchemy

        with engine.connect() as connection:
            began = time.time()
            row = connection.execute(sqlalchemy.text(_SERVER)).one()
            version, most, used, clock, known, compared = row
            ahead = clock - (began + time.time()) / 2
            workers = connection.execute(sqlalchemy.text(_WORKERS)).scalar() if known else 0
            kept, size = 0, ""
            if compared:
                kept, size = connection.execute(sqlalchemy.text(_KEPT)).one()
            for (table,) in connection.execute(sqlalchemy.text(_RIGHTS)):
                raise LabError(
                    f"The storage {shown} cannot be used: its user may not write to the table "
                    f"{table}, which another made. Use that one's name, or a database of your own."
                )
            connection.execute(sqlalchemy.text("CREATE TABLE penex_checkup (number integer)"))
            connection.rollback()  # it was only to see whether one may
    return "\n".join(
        [
            f"storage      {shown}",
            f"server       PostgreSQL {version}; {used} of {count(most, 'connection')} in use",
            "tables       may be made and written",
            f"clock        {abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} this "
            "machine's, which does no harm: leases go by the server's",
            f"workers      {count(workers, 'pack')} being trained",
            f"records      of {count(kept, 'comparison')}{f', {size}' if kept else ''}",
        ]
    )
