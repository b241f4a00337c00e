"""Settings of the region's membership."""

import msgspec


class ViewsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The views by which members of a mesh know each other."""

    view_size: int = 20
    """Members in a view (the paper's V: 10 to 20, and 20 in its evaluation). It must grow with log N: at 20 a
    region of 10,000 (ln N = 9.2) still has twice the degree at which a random graph is connected."""
    gossip_ms: float = 500.0
    """Time between two gossip rounds of a member. Others forget a dead member after `forget_rounds` of them
    (20 s). Two messages of about 700 bytes per round cost 3 kB/s per member."""
    forget_rounds: int = 40
    """Age in rounds at which a silent member is dropped. A live member enters views afresh twice per round
    and has V places in all, so its copies are V/2 = 10 rounds old on average; e^-4 = 2 % of them pass 40, and
    the next gossip fills those places."""
    proxy_rounds: int = 20
    """Rounds after which a member gossips with the proxy, even if the proxy is not in its view, so that
    partitions heal. A thousand members cost the proxy 50 small messages per round."""

    def __post_init__(self) -> None:
        if self.view_size < 1 or self.forget_rounds < 1 or self.proxy_rounds < 1 or self.gossip_ms <= 0:
            raise ValueError(
                "view_size, forget_rounds and proxy_rounds must be at least 1, gossip_ms above 0"
            )

    @property
    def gossip_us(self) -> int:
        return round(self.gossip_ms * 1000)
