"""Sweeps: many replays, each of one log under one configuration with one seed, and what they come to together.

Who knows what a replay needs makes the tasks (`asad.cli.sweep_tasks`); here they are shared out, kept and summed up.
"""
