"""Region membership: each client knows a small random part of the others (Sprinkler, section 3.2).

See docs/region-mesh.md.
"""

from qanat.protocols.views.config import ViewsConfig
from qanat.protocols.views.machine import Views
from qanat.protocols.views.membership import GOSSIP, Membership
from qanat.protocols.views.messages import Gossip, Leave, UseProxy

__all__ = ["GOSSIP", "Gossip", "Leave", "Membership", "UseProxy", "Views", "ViewsConfig"]
