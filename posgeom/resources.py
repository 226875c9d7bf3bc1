"""Files that travel with the package: the folders `data` and `pipelines`."""

from pathlib import Path

from posgeom.errors import PosgeomError


def resource(folder: str, name: str) -> Path:
    """Path of the file `name` in a folder that travels with the package.

    A wheel carries the folder inside the package; in a checkout it lies beside it.
    Raises PosgeomError where neither holds the file.
    """
    package = Path(__file__).parent
    # Inside first: beside an installed package lies whatever else is in site-packages.
    for home in (package, package.parent):
        path = home / folder / name
        if path.exists():
            return path
    raise PosgeomError(f"no {folder}/{name} in {package} or beside it; install posgeom again")
