"""Who is who."""

from typing import NewType

Address = NewType("Address", str)
"""A node's name, for example `eu/proxy-1`. A driver maps it to a socket or to a simulated node; a
protocol may compare and sort addresses but reads nothing into them."""
