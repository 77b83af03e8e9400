"""Why jobs waited, by what their log shows: limits, room, order."""
