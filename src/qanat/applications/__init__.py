"""For applications that are told of every change of a datastore, shard by shard, by its publishers
(Wormhole's subscriber library).

```python
from qanat.applications import Callbacks, run


class Cache(Callbacks):
    def on_update(self, update):
        forget(update.table.path, update.key)

    def on_data_loss(self, loss):
        forget_everything()


run(Cache(), application="cache", publishers="qanat://db-1:7421")
```

Start as many of these processes as it takes: each gets a part of the shards, and when one dies the others get
its part. Callbacks run in one thread, one after the other. What they raise ends the process, and what was not
acknowledged is sent again, to whoever has the shard then. See docs/publisher.md.
"""

from qanat.applications.callbacks import Callbacks, DataLoss, Datamarker, Delivery, Update
from qanat.applications.instance import Instance, InstanceSettings
from qanat.applications.running import run

__all__ = [
    "Callbacks",
    "DataLoss",
    "Datamarker",
    "Delivery",
    "Instance",
    "InstanceSettings",
    "Update",
    "run",
]
