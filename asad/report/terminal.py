"""The terminal, with colours as whoever looks wants them."""

from __future__ import annotations

import os

from rich.console import Console


def has_width(console: Console) -> bool:
    """Is there a width to fit, a terminal's or COLUMNS? A pipe has none, though rich takes it to be of 80 columns."""
    return console.is_terminal or "COLUMNS" in os.environ


def terminal_console(*, stderr: bool = False, highlight: bool = False) -> Console:
    """Standard output or error with colours as the environment wants them: NO_COLOR and CLICOLOR=0 forbid them, and
    CLICOLOR_FORCE (or rich's own FORCE_COLOR) asks for them even where nobody looks."""
    forbidden = bool(os.environ.get("NO_COLOR")) or os.environ.get("CLICOLOR") == "0"
    forced = os.environ.get("CLICOLOR_FORCE", "0") not in ("", "0") and not forbidden
    return Console(
        stderr=stderr,
        highlight=highlight,
        no_color=forbidden or None,
        force_terminal=True if forced else None,
    )
