import jax
import numpy as np
import pytest
import torch

from converters import open_artifact, open_model
from converters.errors import ConversionError, UnknownFormatError
from converters.graph.export import from_exported
from converters.graph.replay import run
from converters.input_form import InputForm


class Head(torch.nn.Module):
    """Recurrent layers and a linear one, with a constant and unused weights."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.GRU(3, 4, 2, batch_first=True, bidirectional=True)
        self.linear = torch.nn.Linear(8, 2)
        self.spare = torch.nn.Linear(2, 2)
        self.register_buffer("order", torch.tensor([1, 0]))

    def forward(self, x):
        y, _ = self.layer(x)
        return self.linear(y[:, -1] * torch.tensor([0.5])).relu_()[:, self.order]


def _exported(module, *inputs, **options):
    with torch.no_grad():
        return torch.export.export(module.eval(), inputs, strict=False, **options)


def _agree(captured, module, x):
    with torch.no_grad():
        expected = module(x).numpy()
    (got,) = jax.jit(run, static_argnums=0)(captured.graph, dict(captured.params), [x.numpy()])
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def head():
    torch.manual_seed(0)
    return Head().eval()


@pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning")
def test_layers_stay_one_call(head):
    captured = from_exported(_exported(head, torch.rand(2, 5, 3)))
    assert {"aten.gru.input", "aten.linear.default"} <= set(captured.graph.operators())
    names = {name for name, _ in head.named_parameters() if not name.startswith("spare")}
    assert set(captured.params) == names
    assert captured.unused == ("spare.weight", "spare.bias")
    assert {node.source for node in captured.graph.nodes} >= {"layer", "linear"}
    _agree(captured, head, torch.rand(2, 5, 3))


class Layered(torch.nn.Module):
    """Rows of a picture as a sequence, and a product of two features."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.pairs = layer, torch.nn.Bilinear(4, 4, 3)

    def forward(self, x):
        last = self.layer(x.mean(1))[0][:, -1]
        return self.pairs(last, last.tanh())


@pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning")
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_layers_of_an_open_number_of_images_stay_one_call(tmp_path, name):
    torch.manual_seed(0)
    module = Layered(getattr(torch.nn, name)(8, 4, batch_first=True)).eval()
    images = torch.rand(2, 3, 8, 8)
    shapes = ({0: torch.export.Dim("n", max=64)},)
    torch.export.save(_exported(module, images, dynamic_shapes=shapes), tmp_path / "net.pt2")
    model = open_model(tmp_path / "net.pt2").model
    got = model(images.permute(0, 2, 3, 1).numpy())
    np.testing.assert_allclose(got, module(images).detach().numpy(), 1e-4, 1e-5)


class Bright(torch.nn.Module):
    """Takes bytes."""

    def __init__(self):
        super().__init__()
        self.last = torch.nn.Linear(3, 4)

    def forward(self, x):
        return self.last((x.float() / 255 - 0.5).mean((2, 3)))


@pytest.mark.parametrize("form", [InputForm(), InputForm(bounds=(0, 255))])
@pytest.mark.parametrize("is_open", [False, True])
def test_a_program_that_takes_bytes_gets_them(tmp_path, form, is_open):
    module = Bright().eval()
    images = torch.randint(0, 256, (2, 3, 8, 8), dtype=torch.uint8)
    shapes = ({0: torch.export.Dim("n", max=64)},) if is_open else None
    program = _exported(module, images if is_open else images[:1], dynamic_shapes=shapes)
    torch.export.save(program, tmp_path / "net.pt2")
    model = open_model(tmp_path / "net.pt2", form).model
    got = model(images.permute(0, 2, 3, 1).numpy().astype(np.float32) / 255)
    np.testing.assert_allclose(got, module(images).detach().numpy(), 1e-4, 1e-5)
    said = "the program takes images of uint8; the bounds 0 and 255 were taken"
    assert (said in model.findings) == (form.bounds is None)
    assert not any(
        "was assumed" in finding or "were assumed" in finding for finding in model.findings
    )


def test_a_program_that_takes_other_whole_numbers_is_refused(tmp_path):
    program = _exported(Bright().eval(), torch.zeros(1, 3, 8, 8, dtype=torch.int32))
    torch.export.save(program, tmp_path / "net.pt2")
    with pytest.raises(ConversionError, match="takes int32, expected floating values or uint8"):
        open_model(tmp_path / "net.pt2")


def test_symbols_take_the_value_asked_for_or_one():
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(6, 2)).eval()
    program = _exported(module, torch.rand(4, 2, 3), dynamic_shapes=({0: torch.export.Dim("n")},))
    captured = from_exported(program)
    assert captured.graph.inputs[0].shape == (1, 2, 3)
    assert set(captured.params) == {"1.weight", "1.bias"}
    _agree(captured, module, torch.rand(1, 2, 3))
    assert from_exported(program, [torch.rand(3, 2, 3)]).graph.inputs[0].shape == (3, 2, 3)
    with pytest.raises(ConversionError, match="exported for"):
        from_exported(program, [torch.rand(3, 2, 4)])


def test_what_reads_weights_alone_names_what_reads_networks(tmp_path):
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(6, 2)).eval()
    torch.export.save(_exported(module, torch.rand(1, 2, 3)), tmp_path / "net.pt2")
    with pytest.raises(UnknownFormatError, match=r"an exported program, .*converters\.open_model"):
        open_artifact(tmp_path / "net.pt2")


def test_a_fixed_batch_is_refused_with_what_to_do():
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(6, 2)).eval()
    program = _exported(module, torch.rand(4, 2, 3))
    with pytest.raises(ConversionError, match="got 1 x 2 x 3, .* exported for 4 x 2 x 3; .* image"):
        from_exported(program, [torch.rand(1, 2, 3)])
    program = _exported(module, torch.rand(4, 2, 3), dynamic_shapes=({0: torch.export.Dim("n")},))
    with pytest.raises(ConversionError, match="exported for any x 2 x 3"):
        from_exported(program, [torch.rand(1, 2, 4)])


def test_state_must_not_change():
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.seen: torch.Tensor
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x):
            self.seen.add_(1)
            return x * self.seen

    with pytest.raises(ConversionError, match="changes seen"):
        from_exported(_exported(Counting(), torch.ones(2)))


class Bytes(torch.nn.Module):
    """Bytes compared with one number, which torch makes a byte first: 44."""

    def forward(self, x):
        return ((x * 250).to(torch.uint8) < torch.tensor(300)).float().flatten(1)


def test_a_number_without_axes_has_none_when_it_is_read_from_a_file(tmp_path):
    x = torch.linspace(0, 1, 12).reshape(1, 3, 2, 2)
    torch.export.save(_exported(Bytes(), x), tmp_path / "bytes.pt2")
    model = open_model(tmp_path / "bytes.pt2", InputForm(bounds=(0, 1))).model
    got = model(x.permute(0, 2, 3, 1).numpy())
    np.testing.assert_array_equal(got, Bytes()(x).numpy())
