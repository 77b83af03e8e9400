"""Archives of arrays (`.npz`) as instances of benchmarks come in them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asad.bounded import BROKEN_ARCHIVE
from asad.errors import ConfigError


def read_archive(path: Path, keys: Collection[str], page: str) -> dict[str, NDArray[Any]]:
    """Those of `keys` that the archive holds, none pickled. Raises ConfigError, which names the `page` of the docs."""
    try:
        with path.open("rb") as file:  # by ourselves: numpy leaves a broken one open
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise ConfigError(
                    f"{path}: is one array, not an archive of several; write it with numpy.savez"
                )
            with archive:
                return {key: archive[key] for key in archive.files if key in keys}
    except BROKEN_ARCHIVE as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}: cannot be read as .npz ({reason}); see {page} for its keys") from error
