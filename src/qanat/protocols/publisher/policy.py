"""The policy that a publisher's settings name."""

from collections.abc import Callable, Mapping

from qanat.protocols.caravans import policy
from qanat.protocols.caravans.policy import Policy
from qanat.protocols.publisher.config import PublisherConfig


def make_policy(
    config: PublisherConfig, known: Mapping[str, Callable[[int], Policy]] | None = None
) -> Policy:
    return policy.make_policy(config.policy, config.near, known)
