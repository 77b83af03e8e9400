"""ASAx: lending idle cores of running jobs; the evaluation of the paper."""
