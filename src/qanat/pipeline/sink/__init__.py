"""Tables that are written into streams: columns, plans, staged files."""
