"""Who was there, over time: slots of pilots, and those of them that had a task; and site jobs."""

from covey.lab.clock import Timeline


class Census:
    """Times are counted from its making until now, or until it was stopped."""

    def __init__(self, clock: Timeline) -> None:
        self.jobs = 0  # site jobs that were submitted
        self.enrolled = 0  # pilots
        self.pilot_seconds = 0.0
        self.slot_seconds = 0.0
        self.busy_seconds = 0.0  # of slots with a task, its files being fetched or itself running
        self.job_core_seconds = 0.0  # of site jobs, from their start to their end
        self._clock = clock
        self._began = self._since = clock.time
        self._pilots = 0
        self._slots = 0
        self._busy = 0
        self._stopped = False

    def pilot_came(self, slots: int) -> None:
        self._note()
        self.enrolled += 1
        self._pilots += 1
        self._slots += slots

    def pilot_went(self, slots: int, busy: int) -> None:
        self._note()
        self._pilots -= 1
        self._slots -= slots
        self._busy -= busy

    def task_began(self, cores: int) -> None:
        self._note()
        self._busy += cores

    def task_ended(self, cores: int) -> None:
        self._note()
        self._busy -= cores

    def stop(self) -> None:
        """The tail has begun: shares of time are those until now."""
        self._note()
        self._stopped = True

    def mean_pilots(self) -> float:
        self._note()
        return self.pilot_seconds / max(1e-9, self._since - self._began)

    def filling(self) -> float:
        """The share of the slots' time in which they had a task."""
        self._note()
        return self.busy_seconds / self.slot_seconds if self.slot_seconds else 0.0

    def _note(self) -> None:
        if self._stopped:
            return
        passed = self._clock.time - self._since
        self._since = self._clock.time
        self.pilot_seconds += passed * self._pilots
        self.slot_seconds += passed * self._slots
        self.busy_seconds += passed * self._busy
