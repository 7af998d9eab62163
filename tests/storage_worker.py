"""Open a storage in several processes at once: storage_worker.py URL FOLDER COUNT.

It forks, so that all are ready at the same moment, and ends with the number of those that failed.
"""

import os
import sys
from contextlib import closing
from pathlib import Path

import optuna
import psycopg  # noqa: F401  (imported before the fork)

from penex.lab.tuning.storage import open_storage


def main(url: str, folder: Path, count: int) -> int:
    optuna.storages.RDBStorage  # noqa: B018  (a lazy import)
    wait, go = os.pipe()
    children = []
    for k in range(count):
        child = os.fork()
        if child == 0:
            os.close(go)
            os.read(wait, 1)  # until the parent closes its end
            code = 1
            try:
                with closing(open_storage(url, folder)) as storage:
                    optuna.create_study(storage=storage.optuna, study_name=f"study {k}")
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    os.close(go)
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
