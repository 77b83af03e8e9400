"""Tuned weights of linear scores, and what a planner expects: see asad/defer/linear.py and asad/defer/expected.py."""
