"""Where servers may be found: the addresses given, and those that a region tells of its replicas."""

from collections.abc import Iterable, Mapping

from qanat.runtime.url import BadUrl, Url, format_urls, parse_url


class Endpoints:
    """All known addresses. A server is preferred where it was reached before, be that an alias or a
    tunnel."""

    def __init__(self, given: tuple[Url, ...]) -> None:
        self.given = given
        self._learned: dict[str, Url] = {}
        self._reached: dict[str, Url] = {}

    def __str__(self) -> str:
        return format_urls(self.given)

    def __len__(self) -> int:
        return len(self._all())

    @property
    def any_reached(self) -> bool:
        return bool(self._reached)

    def learn(self, replicas: Mapping[str, str]) -> None:
        """The replicas of the region now, instead of those that it had."""
        self._learned = {}
        for name, text in replicas.items():
            try:
                self._learned[name] = parse_url(text)
            except BadUrl:
                continue  # it is reached by what was given, or not at all

    def reached(self, name: str, url: Url) -> None:
        self._reached[name] = url

    def pop(self, name: str) -> Url | None:
        """Where to look for that server now; if it is not there, the next answer is another address."""
        return self._reached.pop(name, None) or self._learned.get(name)

    def besides(self, names: Iterable[str]) -> list[Url]:
        """All but those under which the servers of these names were reached."""
        known = {self._reached.get(name) for name in names}
        return [url for url in self._all() if url not in known]

    def _all(self) -> list[Url]:
        return list(dict.fromkeys((*self.given, *self._learned.values())))
