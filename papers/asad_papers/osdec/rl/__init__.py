"""Training of the policies that learn by reinforcement. The only room that needs torch: the extra `[rl]`."""
