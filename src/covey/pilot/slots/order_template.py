"""Make the order that a slot runs from a bag's body and a task's values.

What all tasks of a bag share is in one plan, told to each slot once; an order has only what
differs.
"""

import glob
from typing import Dict, List, Sequence, Tuple

from covey.pilot.protocol.messages import Body, Need, Scalar, Task
from covey.pilot.protocol.placeholders import Parts, parse, places_of, render
from covey.pilot.slots.capacity import NOTHING, PLAIN, Ask, Grant
from covey.pilot.slots.orders import Link, Order, Plan

_NONE: List[str] = []


class Template:
    """A body prepared for running many tasks. `number` is its plan's; `links` are the bag's inputs,
    `setup` is the directory that its setup made."""

    def __init__(
        self,
        body: Body,
        environment: Dict[str, str],
        number: int = 0,
        links: Sequence[Link] = (),
        setup: str = "",
    ) -> None:
        places = places_of(body.names)
        self.body = body
        self._number = number
        self._words = [parse(word, places) for word in body.argv]
        self._argv = list(body.argv) if all(map(_constant, self._words)) else None
        self._needs = list(body.needs) or [Need()]
        self._asks = [_ask(need, body.pin) for need in self._needs]
        shared, self._class_environments = _class_environments(body, self._needs)
        outputs = [(pattern, parse(pattern, places)) for pattern in body.outputs]
        self._outputs = [parts for _, parts in outputs if not _constant(parts)]
        self.plan = Plan(
            number,
            _shared_environment(body, environment, shared, setup),
            body.chdir,
            list(links),
            [pattern for pattern, parts in outputs if _constant(parts)],
            [_widened(parse(pattern, places)) for pattern in body.optional_outputs],
            body.output_mb << 20,
            list(body.ok_codes),
            body.check,
            body.log_kb << 10,
            setup,
            calls=list(body.argv) if body.calls else [],
            ahead=body.ahead,
        )

    def ask(self, task: Task) -> Ask:
        ask = self._asks[self._class(task)]
        return ask._replace(memory_mb=task.memory_mb) if task.memory_mb else ask

    def order(
        self, key: str, task: Task, grant: Grant = NOTHING, links: Sequence[Link] = ()
    ) -> Order:
        kind = self._class(task)
        need = self._needs[kind]
        if self.plan.calls:
            order = self._call(key, task, grant, need, self._class_environments[kind])
            return order._replace(links=list(links)) if links else order
        argv, outputs = self._argv, _NONE
        if argv is None or self._outputs:
            values: List[Scalar] = [*task.values, task.task, task.bag]
            argv = [render(parts, values) for parts in self._words]
            outputs = [_render_pattern(parts, values) for parts in self._outputs]
        return Order(
            key,
            self._number,
            argv,
            self._environment(key, task, grant, self._class_environments[kind]),
            task.limit_seconds or need.limit_seconds,
            task.memory_mb or need.memory_mb,
            grant.processors,
            list(links) if links else [],
            outputs,
            "",
            need.disk_mb,
        )

    def _call(self, key: str, task: Task, grant: Grant, need: Need, own: Dict[str, str]) -> Order:
        """The order for a call. It has nothing of the task but the call itself: otherwise each call
        would need a worker of its own."""
        return Order(
            key,
            self._number,
            [],
            _limits(task, grant, own) if own or task.memory_mb or grant.gpus else own,
            task.limit_seconds or need.limit_seconds,
            task.memory_mb or need.memory_mb,
            list(grant.processors),
            call=str(task.values[0]),
            disk_mb=need.disk_mb,
        )

    def _class(self, task: Task) -> int:
        return task.need if task.need < len(self._needs) else 0

    def _environment(
        self, key: str, task: Task, grant: Grant, own: Dict[str, str]
    ) -> Dict[str, str]:
        """The variables that differ from task to task."""
        environment = {"COVEY_TASK": str(task.task), "COVEY_ATTEMPT": key}
        if own or task.memory_mb or grant.gpus:
            environment.update(_limits(task, grant, own))
        if self.body.export:
            for name, value in zip(self.body.names, task.values):
                environment[name] = str(value)
        return environment


def _limits(task: Task, grant: Grant, own: Dict[str, str]) -> Dict[str, str]:
    """The variables of a class's limits, and of this task's own."""
    environment = dict(own)
    if task.memory_mb:
        environment["COVEY_MEMORY_MB"] = str(task.memory_mb)
    if grant.gpus:
        devices = ",".join(grant.gpus)
        environment["CUDA_VISIBLE_DEVICES"] = devices
        environment["ROCR_VISIBLE_DEVICES"] = devices
    return environment


def _ask(need: Need, pin: bool) -> Ask:
    ask = Ask(max(1, need.cores), need.memory_mb, need.disk_mb, need.gpus, pin)
    return PLAIN if ask == PLAIN else ask


def _shared_environment(
    body: Body, environment: Dict[str, str], shared: Dict[str, str], setup: str
) -> Dict[str, str]:
    variables = dict(environment)
    variables.update(body.env)
    variables.update(shared)
    variables["COVEY_BAG"] = str(body.bag)
    if setup:
        variables["COVEY_SETUP"] = setup
    return variables


def _class_environments(
    body: Body, needs: Sequence[Need]
) -> Tuple[Dict[str, str], List[Dict[str, str]]]:
    """The variables that all classes share, and those that each class has besides."""
    each = []
    for need in needs:
        cores = str(max(1, need.cores))
        own = {"COVEY_CORES": cores}
        if "OMP_NUM_THREADS" not in body.env:
            own["OMP_NUM_THREADS"] = cores
        if need.memory_mb:
            own["COVEY_MEMORY_MB"] = str(need.memory_mb)
        each.append(own)
    shared = {
        name: value
        for name, value in each[0].items()
        if all(own.get(name) == value for own in each)
    }
    rest = [{name: value for name, value in own.items() if name not in shared} for own in each]
    return shared, rest


def _constant(parts: Parts) -> bool:
    return all(isinstance(part, str) for part in parts)


def _render_pattern(parts: Parts, values: Sequence[Scalar]) -> str:
    """Render a pattern; wildcards inside a value are escaped."""
    return "".join(
        part if isinstance(part, str) else glob.escape(str(values[part])) for part in parts
    )


def _widened(parts: Parts) -> str:
    """One pattern for all tasks: each value becomes `*`. That is enough, because a task's directory
    has only its own files."""
    return "".join(part if isinstance(part, str) else "*" for part in parts)
