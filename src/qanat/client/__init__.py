"""What applications import: `Client` (blocking) and `AsyncClient`, their subscriptions and errors."""

from qanat.client.blocking import BlockingSubscription, Client
from qanat.client.client import AsyncClient
from qanat.client.errors import (
    ClientClosed,
    Congested,
    DeliveryGap,
    EventsLost,
    NoStream,
    OrderRefused,
    OwnedElsewhere,
    PositionsLost,
    PublishRefused,
    RequestRefused,
    ServerRefused,
    Unavailable,
)
from qanat.client.flight import Receipt, Receipts
from qanat.client.mesh_member import MeshSettings
from qanat.client.record import RecordingFailed
from qanat.client.record_format import CorruptRecord
from qanat.client.settings import ClientSettings
from qanat.client.subscription import Subscription
from qanat.events.batch import Batch, Kind
from qanat.events.event import Event

__all__ = [
    "AsyncClient",
    "Batch",
    "BlockingSubscription",
    "Client",
    "ClientClosed",
    "ClientSettings",
    "Congested",
    "CorruptRecord",
    "DeliveryGap",
    "Event",
    "EventsLost",
    "Kind",
    "MeshSettings",
    "NoStream",
    "OrderRefused",
    "OwnedElsewhere",
    "PositionsLost",
    "PublishRefused",
    "Receipt",
    "Receipts",
    "RecordingFailed",
    "RequestRefused",
    "ServerRefused",
    "Subscription",
    "Unavailable",
]
