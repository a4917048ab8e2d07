"""Exported programs of any number of images: what switches by it is named or refused."""

import pytest
import torch

from converters.errors import ConversionError, LoadError, TooLargeError
from converters.findings import NOT_TOGETHER, ONE_ONLY, SUSPICION, doubts
from converters.graph import export_batches
from converters.graph.guard import WorkLimits
from converters.opening import open_model

MANY = 40


class Net(torch.nn.Module):
    """A small classifier; subclasses add to its logits."""

    bump: torch.Tensor
    table: torch.Tensor

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.fc = torch.nn.Conv2d(3, 4, 3, 2), torch.nn.Linear(4, 5)
        self.register_buffer("bump", torch.tensor([[9.0, 0, 0, 0, 0]]))
        self.register_buffer("table", torch.cat([torch.zeros(20), torch.ones(80)]))

    def logits(self, x):
        return self.fc(torch.relu(self.conv(x)).mean((2, 3)))

    def forward(self, x):
        return self.logits(x)


class Quotient(Net):
    def forward(self, x):
        return self.logits(x) + self.bump * (x.shape[0] // 20)


class Largest(Net):
    def forward(self, x):
        return self.logits(x) + self.bump * (torch.sym_max(x.shape[0], 20) - 20)


class Lookup(Net):
    def forward(self, x):
        return self.logits(x) + self.bump * self.table[torch.arange(x.shape[0])].amax()


class Filled(Net):
    def forward(self, x):
        return self.logits(x) + self.bump * (torch.full((), x.shape[0]) > 20)


class Ones(Net):
    def forward(self, x):
        return self.logits(x) + self.bump * (torch.ones(x.shape[0]).sum() > 20)


class Behind(Net):
    def forward(self, x):
        y = self.logits(x)
        behind = torch.nn.functional.pad(y, (0, 0, 0, 25))[20:25]
        return y + self.bump * behind.abs().sum().clamp(0, 1)


class Mixed(Net):
    def forward(self, x):
        y = self.logits(x)
        return y + y.amax(0, keepdim=True)


class Chosen(Net):
    def forward(self, x):
        return self.logits(x) + self.bump * torch.sym_ite(x.shape[0] > 20, 1, 0)


class Shapes(Net):
    """Uses the number of images as networks do."""

    def forward(self, x):
        y = torch.relu(self.conv(x))
        windows = y.permute(0, 2, 3, 1).reshape(y.shape[0] * 7, 7, 4)
        y = windows.view(windows.shape[0] // 7, -1, 4)
        y = torch.cat([self.bump[None, :, :4].expand(y.shape[0], -1, -1), y], 1)
        return self.fc(y[:, 1:].mean(1) + y.new_zeros(y.shape[0], 4))


def saved(path, net, most=None):
    """A program of any number of images; how far images of a large batch are from alone."""
    size = torch.export.Dim("n", min=1, max=most) if most else torch.export.Dim.DYNAMIC
    image = torch.rand(min(4, most or 4), 3, 16, 16)
    program = torch.export.export(net.eval(), (image,), dynamic_shapes=({0: size},), strict=False)
    torch.export.save(program, path)
    images, run = torch.rand(most or MANY, 3, 16, 16), program.module()
    return float((run(images)[:1] - run(images[:1])).abs().max().detach())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("net", [Quotient, Largest, Lookup, Filled, Ones, Behind])
def test_what_switches_at_a_large_batch_is_named(tmp_path, net):
    path = tmp_path / "net.pt2"
    assert saved(path, net()) > 0.5, "the program is not hostile"
    said = [text for text in open_model(path).findings if SUSPICION in text]
    assert said and "images" in said[0], said


@pytest.mark.parametrize(
    ("net", "error", "match"),
    [
        (Mixed, ConversionError, "answers otherwise for an image beside others"),
        (Chosen, LoadError, "no arithmetic"),
    ],
)
def test_what_shows_at_once_or_is_no_arithmetic_is_refused(tmp_path, net, error, match):
    path = tmp_path / "net.pt2"
    assert saved(path, net()) > 0
    with pytest.raises(error, match=match):
        open_model(path)


@pytest.mark.parametrize("most", [None, 2])
@pytest.mark.parametrize("net", [Net, Shapes])
def test_shapes_made_of_the_number_of_images_are_usual(tmp_path, net, most):
    path = tmp_path / "net.pt2"
    assert saved(path, net(), most) < 1e-5
    found = open_model(path).findings
    assert not [text for text in found if SUSPICION in text or text == ONE_ONLY], found


def test_a_program_for_many_images_at_least_is_refused(tmp_path):
    size = torch.export.Dim("n", min=100)
    program = torch.export.export(
        Net().eval(), (torch.rand(128, 3, 16, 16),), dynamic_shapes=({0: size},), strict=False
    )
    torch.export.save(program, tmp_path / "net.pt2")
    with pytest.raises(TooLargeError, match="no fewer than 100 images"):
        open_model(tmp_path / "net.pt2")


def test_a_program_too_dear_for_several_images_says_that_they_were_not_compared(
    tmp_path, monkeypatch
):
    saved(tmp_path / "net.pt2", Net())
    assert not doubts(open_model(tmp_path / "net.pt2").findings)
    few = WorkLimits(multiply_adds=2_000)
    monkeypatch.setattr(export_batches, "WorkLimits", lambda: few)
    (said,) = doubts(open_model(tmp_path / "net.pt2").findings)
    assert said == (f"{NOT_TOGETHER}: one pass takes more multiplications than the 2000 allowed")
