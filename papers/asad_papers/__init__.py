"""What reproduces the evaluations of papers: asad's figures beside theirs. Nothing that runs on a cluster needs it."""

__version__ = "0.1.0"
