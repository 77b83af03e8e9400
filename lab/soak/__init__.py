"""A month of a busy cluster in an hour: the daemon and its store over a made-up Slurm whose clock is advanced.

Run from the checkout, never installed: `python -m lab.soak`.
"""
