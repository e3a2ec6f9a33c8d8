"""Why a running task gets another attempt, or none."""

from collections.abc import Iterable
from itertools import islice

from covey.classad import ERROR
from covey.core.explain.answers import Replication
from covey.core.explain.policy_view import PolicyView, shown
from covey.core.explain.steps import Steps, finish
from covey.core.match import match_cache
from covey.core.record.model import BagStatus

MOST_TASKS = 200  # running ones that the policy is asked about


def _forbidden(view: PolicyView) -> str:
    """Why no running task of the bag gets another attempt, whatever the policy says of it."""
    bag = view.bag
    if not bag.spec.idempotent:
        return "its tasks must not run twice (idempotent = false)"
    if not view.compiled.replicates:
        return "its policy does not ask for it (replication is false)"
    if bag.status is not BagStatus.RUNNING:
        return f"it is {bag.status.value}"
    if bag.open:
        return f"it is open: tasks may still be added (covey close {bag.id})"
    if not view.tail:
        values = ", ".join(
            f"{k} is {v}" for k, v in view.values(view.node("TailCondition")).items()
        )
        return f"it is not in its tail: {view.compiled.texts['TailCondition']}, where {values}"
    return "" if bag.places.live else "no task is running"


def of_tasks(view: PolicyView, tasks: Iterable[int] | None = None) -> Steps[Replication]:
    why = _forbidden(view)
    if why:
        return Replication(active=False, text=f"no running task gets another attempt: {why}")
    answer = Replication(active=True, text="")
    for task in list(islice(view.bag.places.live if tasks is None else tasks, MOST_TASKS)):
        if view.tired():
            break
        yield
        view.of_task(task)
        wants = view.named("ReplicationRequirements")
        most = int(max(1.0, match_cache.as_number(view.named("MaxReplicas"), 2.0)))
        if wants is not True:
            answer.refused += 1
            if not answer.values:
                answer.values = view.values(view.node("ReplicationRequirements"))
                if wants is ERROR:
                    answer.values["ReplicationRequirements"] = shown(wants)
        elif len(view.bag.places.live.get(task, ())) >= most:
            answer.full += 1
        else:
            answer.wanted += 1
    looked = answer.wanted + answer.refused + answer.full
    many = "1 task" if looked == 1 else f"{looked:,} tasks"
    words = [f"{answer.wanted:,} of {many} may get another attempt"]
    words += [f"replication is not true for {answer.refused:,}"] if answer.refused else []
    words += [f"{answer.full:,} have max_replicas attempts already"] if answer.full else []
    answer.text = "it is in its tail: " + "; ".join(words)
    return answer


def of_task(view: PolicyView, task: int) -> Replication:
    bag = view.bag
    if task in bag.replicas.overdue:
        return Replication(active=True, text="it is past its deadline, and offered to other hosts")
    attempts = bag.places.live.get(task, [])
    most = match_cache.most_replicas(view.state, view.now, bag, task)
    if len(attempts) >= most and all(attempt.expired for attempt in attempts):
        words = f"all its attempts are past their deadline; max_replicas allows no more than {most}"
        return Replication(active=False, text=f"{words}, so one of them must end first")
    answer = finish(of_tasks(view, [task]))
    if not answer.active:
        return answer
    if task in bag.replicas.offers:
        answer.text = "it is offered to hosts with a free slot"
    elif answer.full:
        answer.text = "it has as many attempts as max_replicas allows"
    elif answer.refused:
        answer.text = "replication is not true for it"
    else:
        answer.text = "the policy wants another attempt; the next host with a free slot may get it"
    return answer
