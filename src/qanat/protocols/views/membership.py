"""One member's view of its region, kept by gossip with reinforcement (Allavena, Demers, Hopcroft).

Not a machine: it is a part of one (`Views` alone, or the mesh), which hands it its messages and its timer.
"""

from collections.abc import Sequence

from qanat.kernel import Address, Context
from qanat.protocols.views.config import ViewsConfig
from qanat.protocols.views.messages import Gossip

GOSSIP = "gossip"


class Membership:
    """The view and its upkeep. `view` maps each member to its age in rounds, for readers; it never holds
    this node, and never more than `view_size` members.

    A proxy is made with its own address as `proxy`. With `listens=False` (a client to which nobody can open
    a connection) the node takes no part: its view is the proxy alone, and no one hears of it.
    """

    __slots__ = ("_config", "_context", "_me", "_rounds", "listens", "proxy", "view")

    def __init__(
        self, context: Context, config: ViewsConfig, proxy: Address, *, listens: bool = True
    ) -> None:
        self._context = context
        self._config = config
        self._me = context.address
        self._rounds = 0
        self.proxy = proxy
        self.listens = listens
        self.view: dict[Address, int] = {}

    def start(self) -> None:
        """New members know the proxy alone, and ask it at once: its answer is their first view."""
        self._add_proxy()
        if not self.listens:
            return
        # The phase is random, so that a region that starts together does not ask the proxy together.
        self._rounds = self._context.rng.randrange(self._config.proxy_rounds)
        if self.proxy != self._me:
            self._context.cast(self.proxy, Gossip((), (), True))
        self._context.set_timer(GOSSIP, self._context.rng.randrange(self._config.gossip_us) + 1)

    def stop(self) -> None:
        self._context.cancel_timer(GOSSIP)
        self.listens = False
        self.view = {}

    def use_proxy(self, proxy: Address) -> None:
        """The old proxy stays a member like any other, for as long as it is heard of. The new one knows
        nobody
        yet: it is told of us at once."""
        self.proxy = proxy
        self._add_proxy()
        if self.listens and proxy != self._me:
            self._tell(proxy, answer=True)

    def drop(self, peer: Address) -> None:
        """A connection to this member broke. Others may still know it, and if it lives it is back soon."""
        self.view.pop(peer, None)
        self._add_proxy()

    # Gossip

    def on_round(self) -> None:
        """The timer: everyone in the view is a round older; one of them gets our view."""
        self._context.set_timer(GOSSIP, self._config.gossip_us)
        self._rounds += 1
        self._grow_older()
        proxy_is_due = self._rounds % self._config.proxy_rounds == 0 and self.proxy != self._me
        if proxy_is_due:
            self._tell(self.proxy, answer=True)
        elif self.view:
            self._tell(self._context.rng.choice(list(self.view)), answer=True)

    def on_gossip(self, sender: Address, message: Gossip) -> None:
        if not self.listens or sender == self._me:
            return
        if message.answer:
            self._tell(sender, answer=False)
        self._merge(sender, message.members, message.ages)

    def _tell(self, peer: Address, *, answer: bool) -> None:
        """A copy is a round older than what it was copied from.

        Were it not, a copy could go from a member about to count a round to one that just has, and again, and
        never grow older. As it is, a lineage of copies ages by at least t/T - 1 in a time t: a copy that
        stays counts a round per period T, one that goes counts its way.
        """
        ages = tuple([age + 1 for age in self.view.values()])
        self._context.cast(peer, Gossip(tuple(self.view), ages, answer))

    def _grow_older(self) -> None:
        """Age ends what reinforcement alone does not: copies of a dead member that keep being copied.

        Only the member itself ever brings an age of 0 into the world, so once it is dead its youngest copy
        grows a round older per round, wherever it goes: it is gone everywhere in `forget_rounds` + 1 rounds.
        """
        limit = self._config.forget_rounds
        self.view = {peer: age + 1 for peer, age in self.view.items() if age < limit}
        self._add_proxy()

    def _merge(self, sender: Address, members: Sequence[Address], ages: Sequence[int]) -> None:
        """The union of both views, less randomly chosen members; the sender stays (reinforcement)."""
        view, limit = self.view, self._config.forget_rounds
        # A longer list than any honest member has is not read to its end.
        for peer, age in list(zip(members, ages, strict=False))[: self._config.view_size]:
            if peer != self._me and 0 < age <= limit and age < view.get(peer, limit + 1):
                view[peer] = age
        self._reinforce(sender)
        others = [peer for peer in view if peer != sender]
        excess = len(view) - self._config.view_size
        if excess > 0:
            for peer in self._context.rng.sample(others, excess):
                del view[peer]
        self._add_proxy()

    def _reinforce(self, sender: Address) -> None:
        self.view[sender] = 0

    def _add_proxy(self) -> None:
        """A view that is not full takes in the proxy, at the highest age: known here, not passed on."""
        if len(self.view) < self._config.view_size and self.proxy != self._me:
            self.view.setdefault(self.proxy, self._config.forget_rounds)
