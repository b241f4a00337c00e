"""What a process is, put together from the rooms below."""
