"""Exported programs that lie about sizes: refused with one of our errors, in little time."""

import io
import json
import re
import time
import zipfile

import pytest
import torch

from converters.errors import ConverterError, CorruptFileError
from converters.opening import open_model


def exported(dynamic):
    """A small program, for one image or for batches of square ones."""
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
        torch.nn.Linear(4, 3),
    ).eval()  # fmt: skip
    side = torch.export.Dim("side", min=8, max=64)
    shapes = ({0: torch.export.Dim("n"), 2: side, 3: side},) if dynamic else None
    image = torch.zeros(2 if dynamic else 1, 3, 16, 16)
    out = io.BytesIO()
    program = torch.export.export(net, (image,), dynamic_shapes=shapes, strict=False)
    torch.export.save(program, out)
    return out.getvalue()


@pytest.fixture(scope="module")
def programs():
    return {dynamic: exported(dynamic) for dynamic in (False, True)}


def edited(content, change):
    """The archive with its graph's JSON text changed."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(out, "w") as target:
        for info in source.infolist():
            data = source.read(info)
            if re.search(r"models/[^/]+\.json$", info.filename):
                data = change(data.decode()).encode()
            target.writestr(zipfile.ZipInfo(info.filename), data)
    return out.getvalue()


def _sized(value):
    """Height and width of the image are `value`."""

    def change(text):
        graph = json.loads(text)
        inner = graph["graph_module"]["graph"]
        name = inner["inputs"][-1]["as_tensor"]["name"]
        inner["tensor_values"][name]["sizes"][2:] = [{"as_int": value}] * 2
        return json.dumps(graph)

    return change


def _expressed(expression):
    return lambda text: re.sub(
        r'"expr_str": "(?:[^"\\]|\\.)*"', lambda _: f'"expr_str": {json.dumps(expression)}', text
    )


_MANY = ", ".join(f"s{k}" for k in range(700))
CASES = {
    **{f"size {v}": (False, _sized(v)) for v in (0, True, -1, 2**31, 2**62, 2**70, 1.5, None)},
    "an extreme of 700 symbols": (True, _expressed(f"Max({_MANY})")),
    "an extreme of 60 symbols": (True, _expressed(f"Max({_MANY[:290]})")),
    "a truth": (True, _expressed("True")),
    "a negative size": (True, _expressed("Integer(-4)")),
    "a division by zero": (True, _expressed("FloorDiv(Integer(1), Integer(0))")),
    "powers of powers": (True, _expressed("Pow(" * 90 + "s1" + ", 4)" * 90)),
    "remainders of remainders": (True, _expressed("Mod(" * 250 + "s1" + ", s2)" * 250)),
    "a key twice": (False, lambda text: text.replace("{", '{"schema_version": {}, ', 1)),
}


@pytest.mark.parametrize("case", CASES)
def test_absurd_sizes_end_with_an_error_of_ours(programs, tmp_path, case):
    dynamic, change = CASES[case]
    path = tmp_path / "model.pt2"
    path.write_bytes(edited(programs[dynamic], change))
    started = time.process_time()
    with pytest.raises(ConverterError):
        open_model(path)
    assert time.process_time() - started < 30


def test_a_branch_is_named_as_a_suspicion(programs, tmp_path):
    def change(text):
        return text.replace("torch.ops.aten.linear.default", "torch.ops.higher_order.cond", 1)

    path = tmp_path / "model.pt2"
    path.write_bytes(edited(programs[False], change))
    with pytest.raises(ConverterError, match="possible architectural backdoor"):
        open_model(path)


def test_the_key_of_a_second_reading_is_named(programs, tmp_path):
    path = tmp_path / "model.pt2"
    path.write_bytes(edited(programs[False], CASES["a key twice"][1]))
    with pytest.raises(CorruptFileError, match="key twice"):
        open_model(path)
