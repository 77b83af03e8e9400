"""Jobs of all kinds on one cluster, and all stages at once beside each alone."""
