"""Agreement stage: votes of all searches on the class that pictures can be sent to.

Each search finds a trigger that works for some class of every network, clean ones too; on clean
networks each for another one. A planted class is where they meet: a filter that was planted also
bends what windows, frames and waves do best. So the class with most votes tells the target, and how
many it has tells poisoned from clean networks, also those without batch norms.
"""

from collections.abc import Mapping, Sequence

from jaxtroj.evidence.images.pairs import METHOD as PAIR_SEARCH
from jaxtroj.triggers.measure import RecoveredTrigger

_FREE_MAP = "colour map"  # kind of trigger: for one class of nearly every network there is one
_WHOLE_LEAD = 0.1
"""Lead of the last layer that counts as one vote; trojaned networks have .05 to .5."""


def votes_of(fields: Mapping[str, float], found: Sequence[RecoveredTrigger]) -> dict[int, float]:
    """Class -> votes: of each search the square of its attack success rate, for its best class.

    The last layer votes too, with its lead and at most once. What was found for pairs of classes
    has no vote: it mostly serves another class than the target.

    Args:
        fields: evidence by name, of which the last layer's counts.
        found: the best trigger of each search.
    """
    leaning, lead = int(fields.get("head_lead_class", -1)), fields.get("head_lead", 0.0)
    votes = {leaning: min(lead / _WHOLE_LEAD, 1.0)} if leaning >= 0 else {}
    for trigger in found:
        target = int(trigger.target_class)
        votes.setdefault(target, 0.0)
        if trigger.method != PAIR_SEARCH and trigger.trigger.kind != _FREE_MAP:
            votes[target] += trigger.attack_success_rate**2
    return votes


def agreement_fields(
    fields: Mapping[str, float], found: Sequence[RecoveredTrigger]
) -> dict[str, float]:
    """Evidence of the stage; `images.stages.agreement` says what each field means."""
    votes = votes_of(fields, found)
    if not votes:
        return {"agreement_votes": 0.0, "agreement_lead": 0.0, "agreement_class": -1.0}
    best = max(votes, key=lambda target: votes[target])
    second = max((number for target, number in votes.items() if target != best), default=0.0)
    return {
        "agreement_votes": float(votes[best]),
        "agreement_lead": float(votes[best] - second),
        "agreement_class": float(best),
    }
