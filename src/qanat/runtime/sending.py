"""The sending side of a connection: frames out, together where they can be, bounded always; and the
farewell."""

from collections.abc import Iterable

from qanat.runtime.lifetime import Lifetime
from qanat.runtime.service import TRANSPORT_CHANNEL, Closed
from qanat.runtime.settings import TransportSettings
from qanat.wire.control import Goodbye, encode_control
from qanat.wire.frame import Bytes, FrameType, encode

_CORK_BYTES = 64 * 1024  # corked bytes above this go out at once
_JOIN_BYTES = 16 * 1024  # below this in all, or
_JOIN_EACH_BYTES = 2 * 1024  # this for each part, one copy is cheaper than a gathered write


class Sending(Lifetime):
    """Senders heed `writable`: when it turns False they stop, and `Service.on_writable` says when to go on. A
    sender that does not is cut off at `queue_limit_bytes`.
    """

    def __init__(self, settings: TransportSettings) -> None:
        super().__init__(settings)
        self.writable = True
        self.bytes_out = 0
        self._corked = False  # frames are kept together until the service that is being called returns
        self._out: list[Bytes] = []
        self._out_bytes = 0
        self._leaving = False  # GOODBYE was said, and the peer is to close

    def send(self, type_: int, channel: int, control: bytes = b"", attachments: Iterable[Bytes] = ()) -> None:
        """Sends one frame; after the connection ended, does nothing (`on_close` tells)."""
        self.send_parts(encode(type_, channel, control, attachments, limit=self.settings.frame_limit_bytes))

    def send_parts(self, parts: list[Bytes]) -> None:
        """Sends frames already encoded; the same parts may go to many connections."""
        if self._reason is not None:
            return
        size = 0
        for part in parts:
            size += part.nbytes if type(part) is memoryview else len(part)
        self.bytes_out += size
        if self._corked:
            self._out += parts
            self._out_bytes += size
            if self._out_bytes >= _CORK_BYTES:
                self._flush()
        elif len(parts) == 1:
            self._transport.write(parts[0])
        elif size <= _JOIN_BYTES:
            self._transport.write(b"".join(parts))
        else:
            self._transport.writelines(parts)
        if not self.writable:
            self._check_bound()

    @property
    def queued_bytes(self) -> int:
        """What was sent and has not yet reached the kernel."""
        if not self._made or self.closed is not None:
            return 0
        return self._transport.get_write_buffer_size() + self._out_bytes

    def close(self, code: str = "closed", detail: str = "") -> None:
        """Sends what is queued and a GOODBYE, then closes; at the latest after `close_ms`.

        It is for the peer to close its end first. Until then what it still sends is read and thrown away: a
        socket closed with unread bytes would be reset, and the peer would lose what it was just told.
        """
        if self._reason is not None:
            return
        if self._made and not self.opened:
            self.refuse(code, detail)
            return
        self._say_goodbye(code, detail)
        if self._made:
            self._leaving = True
            self._transport.resume_reading()

    def refuse(self, code: str, detail: str) -> None:
        """Says why and closes at once: what a peer that does not speak our language does next is unknown."""
        if self._reason is None:
            self._say_goodbye(code, detail)
            self._transport.close()

    def _say_goodbye(self, code: str, detail: str) -> None:
        if self._made:
            self._flush()
            goodbye = encode_control(Goodbye(code, detail[:1000]))
            self._transport.writelines(encode(FrameType.GOODBYE, TRANSPORT_CHANNEL, goodbye))
            self._set_deadline(self.settings.close_ms, self._leave)
        self._reason = Closed(code, detail)

    def _leave(self) -> None:
        """The peer had its time to close."""
        if self._transport.get_write_buffer_size():
            self._transport.abort()
        else:
            self._transport.close()

    def _flush(self) -> None:
        out, size = self._out, self._out_bytes
        self._out = []
        self._out_bytes = 0
        if not out or self._reason is not None:
            return
        if size <= _JOIN_BYTES or size < len(out) * _JOIN_EACH_BYTES:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))
        else:
            self._transport.writelines(out)

    def _check_bound(self) -> None:
        if self.queued_bytes > self.settings.queue_limit_bytes:
            self.abort("overflow", f"more than {self.settings.queue_limit_bytes} bytes queued for the peer")
