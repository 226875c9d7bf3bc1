"""Where shards are counted, if not in this process."""
