"""Real sockets, clocks, disks and processes: what runs a node."""
