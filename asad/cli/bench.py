"""`asactl bench`: the evaluations of the papers, run anew. They come with the package asad-hpc-papers."""

from __future__ import annotations

import click

from asad.cli.papers import WithPapers

PAPERS = {
    "all": "All papers' evaluations, one after another.",
    "asax-paper": "Tables 2 and 3 and Figure 3 of the ASAx paper.",
    "oasis": "Admission: figures 3 to 6 of the OASiS paper.",
    "oga": "Placement: OgaSched, its baselines and its sweeps.",
    "osdec": "Deferral: OSDEC, its baselines and the offline optimum.",
    "sow": "Statements of work: welfare, truthfulness, speed.",
    "together": "All stages at once, on jobs of all kinds.",
}


@click.group(cls=WithPapers, papers=PAPERS, short_help="Run the papers' evaluations anew.")
def bench() -> None:
    """Run the evaluations of the papers anew, the paper's own figures beside ours."""
