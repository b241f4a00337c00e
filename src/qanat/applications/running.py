"""A process that is one instance of an application."""

import asyncio
import logging
import signal
from collections.abc import Sequence

from qanat.applications.callbacks import Callbacks
from qanat.applications.instance import Instance, InstanceSettings
from qanat.runtime import logs
from qanat.runtime.loop import run as run_loop
from qanat.runtime.settings import TransportSettings


def run(
    callbacks: Callbacks,
    *,
    application: str,
    publishers: str | Sequence[str],
    settings: InstanceSettings | None = None,
    transport: TransportSettings | None = None,
) -> None:
    """Runs until SIGTERM or SIGINT, then gives the shards back and returns. Raises what a callback raises.

    `publishers` are URLs: one, or one for each copy of the dataset. Where the program has set up no logging,
    what is said of publishers and connections goes to stderr, with its reasons.
    """
    if not logging.getLogger("qanat").hasHandlers():
        logs.set_up()

    async def main() -> None:
        instance = Instance(callbacks, application, publishers, settings, transport)
        loop = asyncio.get_running_loop()
        await instance.start()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, instance.stop)
        try:
            await instance.wait()
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    run_loop(main)
