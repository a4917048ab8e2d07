"""Products of matrices under the guard: refused by size and by work, and no compiler imported."""

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from converters.errors import TooLargeError
from converters.graph.guard import SizeGuard, WorkLimits

LONG = 20_000

PRODUCTS = {
    "mm": lambda long: torch.mm(torch.ones(long, 1), torch.ones(1, long)),
    "bmm": lambda long: torch.bmm(torch.ones(2, long, 1), torch.ones(2, 1, long)),
    "addmm": lambda long: torch.addmm(torch.ones(1), torch.ones(long, 1), torch.ones(1, long)),
    "baddbmm": lambda long: torch.baddbmm(
        torch.ones(1), torch.ones(2, long, 1), torch.ones(2, 1, long)
    ),
}


@pytest.mark.parametrize("product", PRODUCTS.values(), ids=PRODUCTS)
def test_the_result_of_a_product_is_refused_before_it_is_made(product):
    with SizeGuard(WorkLimits()), pytest.raises(TooLargeError, match="value_elements"):
        product(LONG)
    with SizeGuard(WorkLimits()):
        assert product(2).shape[-2:] == (2, 2)


@pytest.mark.parametrize("product", PRODUCTS.values(), ids=PRODUCTS)
def test_the_work_of_products_is_counted(product):
    with SizeGuard(WorkLimits(multiply_adds=10**6)), pytest.raises(TooLargeError, match="multipl"):
        product(2000)


def test_several_images_may_take_as_often_what_one_may_and_no_more_at_once():
    mib = 2**18  # elements
    caps = WorkLimits(value_bytes=4 * 2**20 + 2**10)
    with SizeGuard(caps, images=3):
        for _ in range(12):
            view = torch.ones(mib)[:10]
        with pytest.raises(TooLargeError, match="one pass"):
            torch.ones(mib)
    with SizeGuard(caps, images=3):
        kept = [torch.ones(mib) for _ in range(3)]
        view = torch.ones(mib)[:10]
        del view
        view = torch.ones(mib)[:10]
        with pytest.raises(TooLargeError, match="one pass"):
            kept.append(torch.ones(mib))
        assert len(view) == 10
    said = "one pass take more than 0.00391 GiB .*--image-size"
    with SizeGuard(caps), pytest.raises(TooLargeError, match=said):
        for _ in range(5):
            torch.ones(mib)


MISFITS = {
    "no matrices": (torch.mm, (), (3,)),
    "small": (torch.mm, (2, 3), (2, 3)),
    "a matrix and a row": (torch.mm, (2000, 2000), (3,)),
    "other inner sizes": (torch.mm, (2000, 2000), (3000, 10)),
    "other inner sizes in a batch": (torch.bmm, (2, 500, 500), (2, 400, 500)),
    "batches of other sizes": (torch.bmm, (2, 500, 500), (3, 500, 500)),
}


@pytest.mark.parametrize(("product", "first", "second"), MISFITS.values(), ids=MISFITS)
def test_products_that_do_not_fit_are_torchs_to_refuse(product, first, second):
    with SizeGuard(WorkLimits()), pytest.raises(RuntimeError):
        product(torch.ones(first), torch.ones(second))


def test_products_do_not_import_torchs_compiler():
    """1.5 s of every process that opens an ONNX file with a last layer."""
    code = (
        "import sys, torch\n"
        "from converters.graph.guard import SizeGuard, WorkLimits\n"
        "with SizeGuard(WorkLimits()):\n"
        "    torch.nn.functional.linear(torch.ones(64, 64), torch.ones(64, 64), torch.ones(64))\n"
        "sys.exit('torch._dynamo' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("pool", [F.max_pool2d, F.avg_pool2d, F.max_pool3d, F.avg_pool1d])
def test_the_work_of_pools_is_counted(pool):
    """A window of 3200 x 3200 over a padded picture would take hours."""
    axes = int(pool.__name__[-2])
    image = torch.zeros(1, 1, *[8] * axes)
    with SizeGuard(WorkLimits(multiply_adds=10**3)), pytest.raises(TooLargeError, match="multipl"):
        pool(image.expand(40, 40, *image.shape[2:]), 4, 1)
    with SizeGuard(WorkLimits(multiply_adds=10**6)):
        assert pool(image, 4, 1).shape[-1] == 5
