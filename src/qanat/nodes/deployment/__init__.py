"""A deployment on this machine: its file, its folder, the supervisor of its processes, and what operators ask of it."""
