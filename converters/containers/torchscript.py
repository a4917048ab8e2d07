"""TorchScript archives: weights and hyperparameters of known networks, read as data.

An archive holds a network as code, which is never run. What stands in it as data is enough for
torchvision's own networks: the tensors, the class of every module, and the numbers its layers were
made with, which scripted code names as constants and traced code has in its calls. The code itself
is reduced to a digest, which `converters.scripts` compares with that of the network that was made.
Networks of other classes are code only, and refused.
"""

import ast
import hashlib
import re
from dataclasses import dataclass
from typing import Any

from converters.containers.zip_file import ZipReader
from converters.errors import CorruptFileError, TooLargeError, UnknownFormatError, safe_repr
from converters.pickles.standins import Standin
from converters.tensors import TensorRef

SCRIPTS = "__torch__"
_MANGLED = re.compile(r"\.___torch_mangle_[0-9]{1,6}")
_NAME = re.compile(rf"{SCRIPTS}(?:\.\w+)+")
# A class or function: its first line and the indented or empty lines under it.
_BLOCK = re.compile(r"^(?:class|def) [^\n]*\n(?:[ \t)\n][^\n]*\n?|\n)*", re.M)
_HEAD = re.compile(r"(?:class|def) (\w+)\(")
# torch keeps the names of a class's constants in a set, whose order differs between processes.
_CONSTANTS = re.compile(r"(?:^  \w+ : Final\[[^\n]*\n)+", re.M)
# A class, method or attribute by its name, which is not to be taken for a variable.
_DECLARED = re.compile(r"^(?:class |def |  def |  )(\w+)(?: : |\()", re.M)
# A text, or a numbered variable: no attribute, no argument's name.
_NUMBERED = re.compile(r'"(?:[^"\\\n]|\\.)*"?|(?<![\w.])[A-Za-z_]\w*[0-9]\b(?!=)')
_OP_VERSION = re.compile(r"^op_version_set = [0-9]{1,9}$", re.M)
# The most code of torchvision's networks, EfficientNetV2-L traced, has 0.75 MB.
_MOST_CODE = 2**22
# Constants of one class, which each of its modules keeps; torch's layers have up to 20.
_MOST_CONSTANTS = 100
_MOST_MODULES = 20_000
_MOST_DEPTH = 64
_CONSTANT = re.compile(r"^  (\w{1,60}) : Final\[[^\n]{1,100}?\] = ([^\n]{1,200})$", re.M)
_PAIR = r"\[(\d{1,6}, \d{1,6})\]"
# What a traced layer was made with, by the one call in its code. An argument that has its default
# may be left out of it.
_CALLS = {
    "Conv2d": (
        re.compile(
            rf"torch\._convolution\(\w+, \w+, \w+, {_PAIR}, {_PAIR}, {_PAIR}, False, \[0, 0\], "
            r"(\d{1,6}), "
        ),
        ("stride", "padding", "dilation", "groups"),
        {},
    ),
    "MaxPool2d": (
        re.compile(
            rf"torch\.max_pool2d\(\w+, {_PAIR}, {_PAIR}(?:, {_PAIR})?(?:, {_PAIR})?"
            r"(?:, (True|False))?\)"
        ),
        ("kernel_size", "stride", "padding", "dilation", "ceil_mode"),
        {"padding": (0, 0), "dilation": (1, 1), "ceil_mode": False},
    ),
    "BatchNorm2d": (
        re.compile(r"torch\.batch_norm\((?:\w+, ){5}False, [\d.e+-]{1,30}, ([\d.e+-]{1,30}), "),
        ("eps",),
        {},
    ),
    "LayerNorm": (
        re.compile(
            r"torch\.layer_norm\(\w+, \[[\d, ]{1,60}\], \w+, \w+(?:, ([\d.e+-]{1,30}))?[,)]"
        ),
        ("eps",),
        {"eps": 1e-5},
    ),
}
FINDING = (
    "a TorchScript archive: its code was not run; it was taken for torchvision's {}, whose code "
    "must be the same"
)


def as_network(value: Any, archive: ZipReader, root: str) -> tuple[Standin, tuple[str, ...]]:
    """The archive's network as a pickled module would look, and what a reader should know.

    Args:
      value: what its data.pkl holds.
      archive: its members.
      root: their folder, with its slash.

    Raises:
      UnknownFormatError: not a network of torchvision's, or a layer with unknown numbers.
      TooLargeError: it has too much code or too many modules.
    """
    if not isinstance(value, Standin) or not value.class_name.startswith(f"{SCRIPTS}."):
        raise UnknownFormatError(f"a TorchScript archive of {safe_repr(value)}, expected a module")
    name = _class_name(value)
    if not name.startswith("torchvision.models."):
        raise UnknownFormatError(
            f"a TorchScript archive of {safe_repr(name)}, whose network is code, which is not run; "
            "export the network with torch.onnx.export or torch.export.save, or save its state dict"
        )
    code = _Code(archive, root)
    made: dict[int, Standin] = {}
    network = _module(value, code, made, 0)
    network.state["script"] = code.digest(value.class_name)
    return network, (FINDING.format(name.rpartition(".")[2]),)


def _class_name(module: Standin) -> str:
    return _MANGLED.sub("", module.class_name.removeprefix(f"{SCRIPTS}."))


@dataclass(frozen=True)
class _Class:
    """What the text of a class says of its modules: numbers by name, and its lines."""

    numbers: dict[str, Any]
    lines: frozenset[str]


class _Code:
    """Texts of the classes in an archive, each file read and taken apart once."""

    def __init__(self, archive: ZipReader, root: str):
        self._archive = archive
        self._root = root
        self._files: dict[str, dict[str, str]] = {}
        self._classes: dict[str, _Class] = {}
        self._read = 0

    def layer(self, module: Standin) -> "_Class":
        """What the text of a module's class says; many modules share one."""
        name = module.class_name
        if name not in self._classes:
            text = self.of_class(name)
            numbers = _numbers(_class_name(module), text)
            self._classes[name] = _Class(numbers, frozenset(text.split("\n")))
        return self._classes[name]

    def of_class(self, name: str) -> str:
        """Text of a class or function by its full name in the archive; empty where it has none."""
        path, _, short = name.rpartition(".")
        return self._file(f"{self._root}code/{path.replace('.', '/')}.py").get(short, "")

    def digest(self, root: str) -> str:
        """Digest of all code that the root class leads to, whatever its names are mangled to.

        Names and variables are numbered as they are met and constants sorted, so that two archives
        with equal digests have equal code of equal classes at equal places. The version decides
        what operators mean, and the constants are tensors that the code names.
        """
        numbers, order = {root: 0}, [root]

        def numbered(match: re.Match[str]) -> str:
            name = match[0]
            if name not in numbers:
                numbers[name] = len(order)
                order.append(name)
            return f"{_MANGLED.sub('', name)}#{numbers[name]}"

        state = hashlib.sha256()
        for member in sorted(self._archive.members):
            if member.removeprefix(self._root).startswith(("version", "constants")):
                state.update(member.removeprefix(self._root).encode() + b"\0")
                state.update(self._archive.read(member))
        for name in order:  # which grows as names are met
            if len(order) > _MOST_MODULES:
                raise TooLargeError("the archive has too many classes")
            text = _NAME.sub(numbered, _renumbered(_CONSTANTS.sub(_sorted, self.of_class(name))))
            state.update(text.encode("utf-8", "surrogatepass") + b"\0")
        return state.hexdigest()

    def _file(self, name: str) -> dict[str, str]:
        """The classes and functions of a file by name; none where the archive has no such file."""
        if name not in self._files:
            member = self._archive.members.get(name)
            self._read += 0 if member is None else member.size
            if self._read > _MOST_CODE:
                raise TooLargeError(f"the archive has more than {_MOST_CODE} bytes of code")
            raw = b"" if member is None else bytes(self._archive.read(name))
            self._files[name] = _blocks(raw.decode("utf-8", "replace"), name)
        return self._files[name]


def _blocks(text: str, file: str) -> dict[str, str]:
    """The text of each class and function by its name."""
    if _OP_VERSION.sub("", _BLOCK.sub("", text)).strip():
        raise CorruptFileError(
            f"the archive's {safe_repr(file)} holds more than classes and functions"
        )
    found: dict[str, str] = {}
    for block in _BLOCK.findall(text):
        head = _HEAD.match(block)
        name = head[1] if head else ""
        if name and name in found:
            raise CorruptFileError(f"the archive's {safe_repr(file)} has {safe_repr(name)} twice")
        found[name] = block
    return found


def _renumbered(text: str) -> str:
    """Numbered variables of a class numbered as they are met: torch goes on from class to class.

    Each has a name of its own, with a sign that no code has, so that equal texts are equal code.
    """
    declared = set(_DECLARED.findall(text))
    numbers: dict[str, int] = {}

    def renamed(match: re.Match[str]) -> str:
        name = match[0]
        if name[0] == '"' or name in declared:
            return name
        return f"${numbers.setdefault(name, len(numbers))}"

    return _NUMBERED.sub(renamed, text)


def _sorted(lines: re.Match[str]) -> str:
    return "\n".join(sorted(lines[0].split("\n")))


def _module(module: Standin, code: _Code, made: dict[int, Standin], depth: int) -> Standin:
    """A module with its parameters, submodules and attributes apart, as torch keeps them."""
    if id(module) in made:
        return made[id(module)]
    if depth > _MOST_DEPTH or len(made) > _MOST_MODULES:
        raise TooLargeError("the archive's modules nest too deeply, or are too many")
    name = _class_name(module)
    parameters: dict[str, Any] = {}
    modules: dict[str, Any] = {}
    layer = code.layer(module)
    attributes = dict(layer.numbers)
    state = {"_parameters": parameters, "_buffers": {}, "_modules": modules}
    made[id(module)] = built = Standin(name, state, built=True)
    for key, value in module.state.items():
        if isinstance(value, TensorRef):
            parameters[key] = value
        elif isinstance(value, Standin):
            _check_type(key, value, layer.lines)
            modules[key] = _module(value, code, made, depth + 1)
        elif key not in state:
            attributes[key] = value
    state.update({k: v for k, v in attributes.items() if k not in state and k not in parameters})
    return built


def _check_type(key: str, child: Standin, lines: frozenset[str]) -> None:
    """A submodule's class must be the one whose code its parent's code calls."""
    forms = (f"  {key} : {child.class_name}", f'  __annotations__["{key}"] = {child.class_name}')
    if lines.isdisjoint(forms):
        raise CorruptFileError(
            f"the archive's submodule {safe_repr(key)} is not of the class that its code names"
        )


def _numbers(name: str, text: str) -> dict[str, Any]:
    """What a layer was made with, from the text of its class."""
    found = {}
    for count, match in enumerate(_CONSTANT.finditer(text)):
        if count >= _MOST_CONSTANTS:
            raise TooLargeError(
                f"the archive's {safe_repr(name)} has more than {_MOST_CONSTANTS} constants"
            )
        try:
            found[match[1]] = ast.literal_eval(match[2])
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    kind = name.rpartition(".")[2]
    if found or kind not in _CALLS or not name.startswith("torch.nn."):
        return found
    pattern, names, defaults = _CALLS[kind]
    calls = list(pattern.finditer(text))
    try:
        values = [_value(text) for text in calls[0].groups()] if len(calls) == 1 else []
    except ValueError:
        values = []
    if len(values) != len(names):
        raise UnknownFormatError(
            f"a TorchScript archive in which the numbers of a {kind} cannot be read; export the "
            "network with torch.onnx.export or torch.export.save"
        )
    given = zip(names, values, strict=True)
    return defaults | {name: value for name, value in given if value is not None}


def _value(text: str | None) -> Any:
    """A matched argument; None where it was left out."""
    if text is None or text in ("True", "False"):
        return None if text is None else text == "True"
    if ", " in text:
        return tuple(map(int, text.split(", ")))
    return int(text) if text.isdecimal() else float(text)
