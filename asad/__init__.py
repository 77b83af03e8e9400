"""asad: a co-scheduler beside Slurm (or on Mesos) that lends idle shares of running allocations to waiting jobs."""

__version__ = "0.1.0"
