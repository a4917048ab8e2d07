"""The challenge against the published algorithm as a slow loop, image by image."""

import pytest

from jaxtroj.backgrounds.challenge import Plan, choose_backgrounds
from jaxtroj.backgrounds.normalization import PUBLISHED
from tests.backgrounds import slow_loop

cases = pytest.mark.parametrize(
    "case", [(kind, size) for kind in ("resnet", "densenet") for size in (9, 1000)], ids=str
)


@cases
def test_the_vulnerable_set_is_the_published_algorithm_s(
    case, challenge_folder, models, mapping, data, run
):
    norm = PUBLISHED["imagenet" if case[1] == 1000 else "in9"]
    network = slow_loop.torch_network(case[0], models[case].params)
    table = mapping.class_of.tolist() if case[1] == 1000 else None
    expected = slow_loop.vulnerable_set(challenge_folder, network, norm.mean, norm.std, table)
    plan = Plan(choose_backgrounds(data, None))
    answers, last = run.answers(run.classifier(*case), plan)
    assert len(expected) == 180 and 10 < sum(expected.values()) < 170, "the set must be mixed"
    assert run.vulnerable(answers) == expected
    assert last.vulnerable == sum(expected.values()) and last.decided == 180
    assert last.most_left == 0 and last.passes == len(answers.predicted) < 180 * 180
