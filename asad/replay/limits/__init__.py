"""Limits of associations and QOS, as Slurm's accounting has them: read, counted by group, and kept in a replay.

sacctmgr_output  what `sacctmgr -P show assoc` and `show qos` print → `Limits`
limit_table      `Limits` and the jobs of a log → groups, what counts in each, and its ceilings
inferred_limits  a log and when and where its jobs ran → ceilings that it shows, from the moments on at which it does
binding          which jobs of a recorded cluster a limit keeps from starting at a moment
broken_starts    which starts of a schedule break a limit
"""
