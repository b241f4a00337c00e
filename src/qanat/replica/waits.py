"""What a region waits for, in a sentence: whom it needs before it may go on, or what does not answer."""

from qanat.protocols.chain.recovery import Waits
from qanat.protocols.region import RegionReplica


def sentence_of(waits: Waits, region: str) -> str:
    """Why the chain stands still, who must come, and what to do if they never will."""
    who = [*waits.away, *(f"{name} (it is back, but without all that it had)" for name in waits.emptied)]
    named = " ".join(f"--without {name}" for name in (*waits.away, *waits.emptied))
    return (
        f"the chain of {region} waits for {_listed(who)}: {waits.why}; start what is missing, with its disk,"
        f" or, if it is gone for ever, run `qanat coordinator rebuild --region {region} {named}`"
    )


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


class Waiting:
    """Looked at now and then; `why` is empty unless the chain has stood still for longer than `patience_s`,
    which it does for a moment after every start and loss. `at_once` does not wait."""

    def __init__(self, region: str, coordinator: str, patience_s: float) -> None:
        self._region, self._coordinator, self._patience_s = region, coordinator, patience_s
        self._since_s: float | None = None
        self.why = ""
        self.at_once = ""

    def look(self, now_s: float, machine: RegionReplica | None, leased: bool) -> bool:
        """Whether there is something new to say."""
        waits = None if machine is None else machine.manager.waits
        if machine is None or (waits is None and leased):
            self._since_s, self.why, self.at_once = None, "", ""
            return False
        if self._since_s is None:
            self._since_s = now_s
        lasts = now_s - self._since_s >= self._patience_s
        if not leased:  # what was read of the coordinator may be out of date
            said = (
                f"{self._coordinator}, the coordinator of {self._region}, does not answer, and without it"
                " nobody knows who may serve"
            )
            self.at_once = said if lasts else ""
        elif waits is not None:
            self.at_once = sentence_of(waits, self._region)
        before, self.why = self.why, self.at_once if lasts else ""
        return bool(self.why) and self.why != before
