"""What every plugin of a resource manager needs: rows, measurements, leases, shares, a journal, and the doctor's nouns.

A plugin asks its resource manager and does what was decided; whatever is the same for all of them is here, so that
another one is one small package (docs/how-to/write-a-cluster.md). Nothing here asks a resource manager anything.
"""
