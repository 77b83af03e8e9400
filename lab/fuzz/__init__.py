"""Hostile input: mutated logs, configurations, answers, messages and journals, put to whatever of asad reads them.

Run from the checkout, never installed: `python -m lab.fuzz`.
"""
