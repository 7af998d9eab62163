"""The code of a user's own model: its file, and those of the user's that it imports."""

import ast
import hashlib
import importlib.machinery
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path


def checksum(module: str) -> str | None:
    """Sixteen hexadecimal digits that change when the code of a module does.

    That code is the module's file and all that it imports, directly or not, from below the folder
    that the module is imported from. What is installed, and this package, do not count.
    """
    found = files_of(module)
    own = found.get(module)
    if own is None:
        return None
    if len(found) == 1:
        return hashlib.sha256(own.read_bytes()).hexdigest()[:16]
    digest = hashlib.sha256()
    for name, path in sorted(found.items()):
        digest.update(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


def files_of(module: str) -> dict[str, Path]:
    """The files of a module and of what it imports from its tree, by their names."""
    own = _file(module)
    if own is None:
        return {}
    depth = module.count(".") + (own.name == "__init__.py")
    root = own.parents[depth]
    found = {module: own}
    todo = [module, *_imports(module, own)]
    while todo:
        words = todo.pop().split(".")
        for k in range(1, len(words) + 1):  # importing a.b runs a first
            name = ".".join(words[:k])
            path = found.get(name) or _file(name)
            if path is None and not _is_namespace(name):
                break
            if path is None or name in found:
                continue
            if words[0] == "penex" or not _is_users(path, root):
                break
            found[name] = path
            todo += _imports(name, path)
    return found


def _file(name: str) -> Path | None:
    """The Python file of a module, loaded or not; None if it has none."""
    place = getattr(sys.modules.get(name), "__file__", None)
    if place is None:
        spec = _spec(name)
        place = spec.origin if spec else None
    path = Path(place).resolve() if place else None
    return path if path and path.suffix == ".py" and path.is_file() else None


def _spec(name: str) -> importlib.machinery.ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):  # a name inside of a module is none
        return None


def _is_namespace(name: str) -> bool:
    spec = _spec(name)
    return spec is not None and spec.origin is None and bool(spec.submodule_search_locations)


def _is_users(path: Path, root: Path) -> bool:
    """Whether a file lies below a folder, and not among what is installed there."""
    if not path.is_relative_to(root):
        return False
    installed = ("stdlib", "platstdlib", "purelib", "platlib")
    places = [Path(sysconfig.get_path(name)).resolve() for name in installed]
    inside = path.relative_to(root).parts
    return not (
        any(path.is_relative_to(place) for place in places)
        or {"site-packages", "dist-packages"} & set(inside)
    )


def _imports(name: str, path: Path) -> Iterator[str]:
    """The names that a file imports; some may be no modules but what is in one."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # one that is imported later, if ever
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join(filter(None, [*above, base]))
            if base:
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names)
