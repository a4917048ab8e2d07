"""Pickles that try to run code: each is refused by name, and what it would run does not happen."""

import pickle
import subprocess
import sys
from collections.abc import Callable

import pytest

from converters.artifact import open_artifact
from converters.errors import LoadError, UnsafePickleError

# -- a small assembler: each function returns the opcodes that leave one value on the stack --------


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + len(raw).to_bytes(4, "little") + raw


def name(module: str, attribute: str) -> bytes:
    return f"c{module}\n{attribute}\n".encode()


def stack_name(module: str, attribute: str) -> bytes:
    return text(module) + text(attribute) + b"\x93"


def row(*values: bytes) -> bytes:
    return b"(" + b"".join(values) + b"t"


def call(target: bytes, *args: bytes) -> bytes:
    return target + row(*args) + b"R"


def table(**entries: bytes) -> bytes:
    return b"}(" + b"".join(text(key) + value for key, value in entries.items()) + b"u"


def module(class_module: str, class_name: str, **state: bytes) -> bytes:
    """A module instance with the given state, as torch pickles it."""
    state = {"_parameters": b"}", "_buffers": b"}", "_modules": b"}", **state}
    return name(class_module, class_name) + b")\x81" + table(**state) + b"b"


def linear(**state: bytes) -> bytes:
    return module("torch.nn.modules.linear", "Linear", **state)


def whole(value: bytes) -> bytes:
    """A pickle; dotted names mean attributes of attributes from protocol 4 only."""
    return (b"\x80\x04" if b"\x93" in value else b"\x80\x02") + value + b"."


# -- payloads: opcodes that create the canary file if anything runs them ---------------------------


def system(canary: str) -> bytes:
    return call(name("os", "system"), text(f"touch '{canary}'"))


def code(canary: str) -> bytes:
    return text(f"open({canary!r}, 'w').close()")


def nested(canary: str) -> bytes:
    inner = whole(system(canary))
    return b"B" + len(inner).to_bytes(4, "little") + inner


# Those that work with the standard library alone: run for real in a control, to show they are live.
LIVE: dict[str, tuple[str, Callable[[str], bytes]]] = {
    "os.system": ("os.system", system),
    "posix.system": (
        "posix.system",
        lambda c: call(name("posix", "system"), text(f"touch '{c}'")),
    ),
    "eval": ("builtins.eval", lambda c: call(name("builtins", "eval"), code(c))),
    "exec": ("builtins.exec", lambda c: call(name("builtins", "exec"), code(c))),
    "python2 eval": ("builtins.eval", lambda c: call(name("__builtin__", "eval"), code(c))),
    "getattr chain": (
        "builtins.getattr",
        lambda c: call(
            call(
                name("builtins", "getattr"),
                call(name("builtins", "__import__"), text("os")),
                text("system"),
            ),
            text(f"touch '{c}'"),
        ),
    ),
    "__import__": (
        "builtins.__import__",
        lambda c: call(name("builtins", "__import__"), text("os")) + b"0" + system(c),
    ),
    "open": ("builtins.open", lambda c: call(name("builtins", "open"), text(c), text("w"))),
    "io.open": ("io.open", lambda c: call(name("io", "open"), text(c), text("w"))),
    "compile": (
        "builtins.exec",
        lambda c: call(
            name("builtins", "exec"),
            call(name("builtins", "compile"), code(c), text("x"), text("exec")),
        ),
    ),
    "map": (
        "builtins.map",
        lambda c: call(
            name("builtins", "list"),
            call(name("builtins", "map"), name("os", "system"), row(text(f"touch '{c}'"))),
        ),
    ),
    "subprocess.Popen": (
        "subprocess.Popen",
        lambda c: (
            call(name("subprocess", "Popen"), row(text("touch"), text(c)))
            + b"0"
            + call(name("time", "sleep"), b"K\x01")
        ),
    ),
    "subprocess.check_output": (
        "subprocess.check_output",
        lambda c: call(name("subprocess", "check_output"), row(text("touch"), text(c))),
    ),
    "importlib": (
        "importlib.import_module",
        lambda c: call(name("importlib", "import_module"), text("os")) + b"0" + system(c),
    ),
    "pickle.loads": ("pickle.loads", lambda c: call(name("pickle", "loads"), nested(c))),
    "_pickle.loads": ("_pickle.loads", lambda c: call(name("_pickle", "loads"), nested(c))),
    "partial": (
        "os.system",
        lambda c: call(
            call(name("functools", "partial"), name("os", "system"), text(f"touch '{c}'"))
        ),
    ),
    "reduce": (
        "functools.reduce",
        lambda c: call(
            name("functools", "reduce"), name("builtins", "open"), row(text(c), text("w"))
        ),
    ),
    "methodcaller": (
        "operator.methodcaller",
        lambda c: call(
            call(name("operator", "methodcaller"), text("system"), text(f"touch '{c}'")),
            call(name("builtins", "__import__"), text("os")),
        ),
    ),
    "attrgetter": (
        "operator.attrgetter",
        lambda c: call(
            call(
                call(name("operator", "attrgetter"), text("system")),
                call(name("builtins", "__import__"), text("os")),
            ),
            text(f"touch '{c}'"),
        ),
    ),
    "timeit": (
        "timeit.timeit",
        lambda c: call(
            name("timeit", "timeit"), code(c), text("pass"), name("time", "time"), b"K\x01"
        ),
    ),
    "cProfile": ("cProfile.run", lambda c: call(name("cProfile", "run"), code(c))),
    "code.interact": (
        "code.InteractiveInterpreter.runcode",
        lambda c: call(
            stack_name("code", "InteractiveInterpreter.runcode"),
            call(name("code", "InteractiveInterpreter")),
            code(c),
        ),
    ),
    "dotted name": (
        "os.path.os.system",
        lambda c: call(stack_name("os.path", "os.system"), text(f"touch '{c}'")),
    ),
    "object with NEWOBJ": (
        "subprocess.Popen",
        lambda c: name("subprocess", "Popen") + row() + b"\x81" + b"0" + system(c),
    ),
    "INST": ("os.system", lambda c: b"(" + text(f"touch '{c}'") + b"ios\nsystem\n"),
    "OBJ": ("os.system", lambda c: b"(" + name("os", "system") + text(f"touch '{c}'") + b"o"),
    "copyreg.__newobj__": (
        "copyreg.__newobj__",
        lambda c: (
            call(name("copyreg", "__newobj__"), name("builtins", "object")) + b"0" + system(c)
        ),
    ),
    "setstate": (
        "types.SimpleNamespace",
        lambda c: call(name("types", "SimpleNamespace")) + table(a=system(c)) + b"b",
    ),
    "key of a dict": ("os.system", lambda c: b"}" + system(c) + b"K\x01s"),
    "default factory": (
        "os.system",
        lambda c: call(name("collections", "defaultdict"), name("os", "system")) + b"0" + system(c),
    ),
    "member of a set": ("os.system", lambda c: call(name("builtins", "set"), row(system(c)))),
    "dropped": ("os.system", lambda c: system(c) + b"0N"),
    "memoised": (
        "os.system",
        lambda c: name("os", "system") + b"q\x01" + b"0h\x01" + row(text(f"touch '{c}'")) + b"R",
    ),
}

# Refused by name as well, but they need packages, arguments or versions a control cannot count on.
NAMED: dict[str, tuple[str, bytes]] = {
    "runpy": ("runpy.run_path", call(name("runpy", "run_path"), text("x.py"))),
    "webbrowser": ("webbrowser.open", call(name("webbrowser", "open"), text("http://x"))),
    "torch.load": ("torch.load", call(name("torch", "load"), text("x"))),
    "torch.serialization": ("torch.serialization.load", name("torch.serialization", "load")),
    "torch.hub": ("torch.hub.load", call(name("torch.hub", "load"), text("a/b"), text("c"))),
    "torch.jit": ("torch.jit.load", call(name("torch.jit", "load"), text("x"))),
    "torch bytes": ("torch.storage._load_from_bytes", name("torch.storage", "_load_from_bytes")),
    "torch quantized": ("torch._utils._rebuild_qtensor", name("torch._utils", "_rebuild_qtensor")),
    "torch compile": ("torch._inductor.codecache.eval", name("torch._inductor.codecache", "eval")),
    "torch.nn function": ("torch.nn.modules.module.os", name("torch.nn.modules.module", "os")),
    "torch.nn dotted": ("torch.nn.modules.os.system", stack_name("torch.nn", "modules.os.system")),
    "torch.nn dotted class": (
        "torch.nn.Module.os.system",
        stack_name("torch.nn", "Module.os.system"),
    ),
    "torchvision dotted": (
        "torchvision.models.resnet.torch.os.system",
        stack_name("torchvision.models", "resnet.torch.os.system"),
    ),
    "torchvision function": (
        "torchvision.models.utils.load_state_dict_from_url",
        name("torchvision.models.utils", "load_state_dict_from_url"),
    ),
    "lookalike package": ("torch.nnx.Evil", name("torch.nnx", "Evil")),
    "lookalike dot": ("torch.nn..Evil", name("torch.nn.", "Evil")),
    "dunder": (
        "torch.nn.Module.__init__.__globals__",
        stack_name("torch.nn", "Module.__init__.__globals__"),
    ),
    "own class": ("__main__.Net", name("__main__", "Net")),
    "numpy f2py": (
        "numpy.f2py.crackfortran.myeval",
        call(name("numpy.f2py.crackfortran", "myeval"), text("1")),
    ),
    "numpy runstring": (
        "numpy.testing._private.utils.runstring",
        name("numpy.testing._private.utils", "runstring"),
    ),
    "numpy load": ("numpy.load", call(name("numpy", "load"), text("x"), b"N", b"\x88")),
    "function type": ("types.FunctionType", name("types", "FunctionType")),
    "code type": ("types.CodeType", name("types", "CodeType")),
    "marshal": ("marshal.loads", call(name("marshal", "loads"), b"C\x01c")),
    "bdb": ("bdb.Bdb", name("bdb", "Bdb")),
    "pdb": ("pdb.run", call(name("pdb", "run"), text("1"))),
    "ctypes": ("ctypes.CDLL", call(name("ctypes", "CDLL"), text("libc.so.6"))),
    "shutil": ("shutil.rmtree", call(name("shutil", "rmtree"), text("x"))),
    "socket": ("socket.create_connection", name("socket", "create_connection")),
    "multiprocessing": ("multiprocessing.Process", name("multiprocessing", "Process")),
    "site": ("site.main", call(name("site", "main"))),
    "pydoc": ("pydoc.pipepager", name("pydoc", "pipepager")),
    "copyreg extension": ("copyreg.add_extension", name("copyreg", "add_extension")),
    "python 2 shell": ("commands.getoutput", name("commands", "getoutput")),
    "object dtype": ("numpy.dtype", call(name("numpy", "dtype"), text("O8"), b"\x89", b"\x88")),
    "module called": (
        "torch.nn.modules.linear.Linear",
        call(name("torch.nn.modules.linear", "Linear"), b"K\x01", b"K\x01"),
    ),
    "module with arguments": (
        "torch.nn.modules.linear.Linear",
        name("torch.nn.modules.linear", "Linear") + row(b"K\x01") + b"\x81",
    ),
    "base of reconstructor": (
        "copyreg._reconstructor",
        call(
            name("copyreg", "_reconstructor"),
            name("torch.nn", "Linear"),
            name("builtins", "dict"),
            b"}",
        ),
    ),
    "rebuild of anything": (
        "torch.device",
        call(
            name("torch._tensor", "_rebuild_from_type_v2"),
            name("torch", "device"),
            name("torch", "Tensor"),
            row(text("cpu")),
            b"}",
        ),
    ),
    "name as a value": (
        "torch.nn.functional.relu",
        call(name("torch.nn.functional", "relu"), b"K\x01"),
    ),
}

# Refused as operations: they name no global.
OPERATIONS: dict[str, bytes] = {
    "EXT1": b"\x82\x01",
    "EXT2": b"\x83\x01\x00",
    "EXT4": b"\x84\x01\x00\x00\x00",
    "INST of an allowed class": b"(itorch.nn\nLinear\n",
    "OBJ of an allowed class": b"(" + name("torch.nn", "Linear") + b"o",
    "NEWOBJ_EX": name("torch.nn", "Linear") + b")}\x92",
    "PERSID": b"P1\n",
    "out-of-band buffer": b"\x97",
    "call of text": text("os.system") + row(text("true")) + b"R",
    "instance of text": text("os.system") + b")\x81",
    "partial of a function": call(
        name("functools", "partial"), name("torch.nn.functional", "relu")
    ),
    "state of a partial that names another function": call(
        name("functools", "partial"), name("torch.nn", "Linear")
    )
    + row(name("builtins", "list"), row(), b"N", b"N")
    + b"b",
    "state of a partial that is none": call(
        name("functools", "partial"), name("torch.nn", "Linear")
    )
    + b"Nb",
    "call of a partial": call(call(name("functools", "partial"), name("torch.nn", "Linear"))),
    "name from a number": b"K\x01" + text("system") + b"\x93",
    "state of a list": b"]" + table(append=b"N") + b"b",
    "state of a class": name("torch.nn", "Linear") + table(forward=b"N") + b"b",
    "state twice": linear() + table(forward=b"N") + b"b",
    "items of a module": linear() + text("forward") + b"Ns",
    "append to a module": linear() + b"Na",
    "members of a frozenset": b"(\x91" + b"(K\x01\x90",
}


def refused(path, content: bytes) -> UnsafePickleError:
    path.write_bytes(content)
    with pytest.raises(UnsafePickleError) as caught:
        open_artifact(path)
    return caught.value


@pytest.mark.parametrize("case", sorted(LIVE))
def test_live_payload_does_not_run(case, container, tmp_path):
    expected, payload = LIVE[case]
    canary = tmp_path / "canary"
    error = refused(tmp_path / "model.pt", container(whole(payload(str(canary)))))
    assert error.global_name == expected
    assert expected in str(error)
    assert not canary.exists()


def test_live_payloads_are_live(tmp_path):
    """The control: Python's own unpickler runs every one of them."""
    payloads = {
        case: whole(payload(str(tmp_path / f"canary{number}")))
        for number, (case, (_, payload)) in enumerate(LIVE.items())
    }
    script = (
        "import pickle, sys\n"
        "for raw in pickle.load(sys.stdin.buffer):\n"
        "    try: pickle.loads(raw)\n"
        "    except BaseException as error: print(repr(error), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        input=pickle.dumps(list(payloads.values())),
        capture_output=True,
        timeout=60,
    )
    dead = [
        case for number, case in enumerate(payloads) if not (tmp_path / f"canary{number}").exists()
    ]
    assert not dead, done.stderr.decode()


@pytest.mark.parametrize("case", sorted(NAMED))
def test_global_is_refused_by_name(case, container, tmp_path):
    expected, payload = NAMED[case]
    error = refused(tmp_path / "model.pt", container(whole(payload)))
    assert error.global_name == expected
    assert expected in str(error)


@pytest.mark.parametrize("case", sorted(OPERATIONS))
def test_operation_is_refused(case, container, tmp_path):
    refused(tmp_path / "model.pt", container(whole(OPERATIONS[case])))


HIDING_PLACES: dict[str, Callable[[bytes], bytes]] = {
    "attribute": lambda evil: linear(stride=evil),
    "parameter": lambda evil: linear(_parameters=table(weight=evil)),
    "buffer": lambda evil: linear(_buffers=table(mean=evil)),
    "submodule": lambda evil: linear(_modules=table(conv=evil)),
    "state of a submodule": lambda evil: linear(_modules=table(conv=linear(x=evil))),
    "forward hook": lambda evil: linear(_forward_hooks=b"}K\x01" + evil + b"s"),
    "hook of a tensor": lambda evil: call(
        name("torch._utils", "_rebuild_parameter"), b"N", b"\x88", evil
    ),
    "slots": lambda evil: name("torch.nn", "Linear") + b")\x81" + row(b"N", table(a=evil)) + b"b",
    "state dict entry": lambda evil: table(state_dict=table(weight=evil)),
    "metadata": lambda evil: table(epoch=b"K\x01", note=evil),
    "argument": lambda evil: call(name("torch", "Size"), evil),
    "ordered dict": lambda evil: call(
        name("collections", "OrderedDict"), b"(" + row(text("a"), evil) + b"l"
    ),
}


@pytest.mark.parametrize("place", sorted(HIDING_PLACES))
def test_payload_hidden_inside_a_model(place, container, tmp_path):
    canary = tmp_path / "canary"
    content = container(whole(HIDING_PLACES[place](system(str(canary)))))
    assert refused(tmp_path / "model.pt", content).global_name == "os.system"
    assert not canary.exists()


def test_protocol_0_pickle_is_refused_by_name(tmp_path):
    canary = tmp_path / "canary"
    content = f"cos\nsystem\n(S'touch {canary}'\ntR.".encode()
    assert refused(tmp_path / "model.pt", content).global_name == "os.system"
    assert not canary.exists()


def test_class_of_a_persistent_id_is_checked(tmp_path, make_legacy):
    """The legacy stream names module classes in ids, with source text that must never run."""
    canary = tmp_path / "canary"
    source = text("x.py"), text(f"open({str(canary)!r}, 'w').close()")
    evil = row(text("module"), name("os", "system"), *source) + b"Q"
    assert refused(tmp_path / "a.pt", make_legacy(whole(evil))).global_name == "os.system"
    wrong_kind = row(text("module"), name("collections", "OrderedDict"), *source) + b"Q"
    refused(tmp_path / "b.pt", make_legacy(whole(wrong_kind)))
    assert not canary.exists()


def test_source_text_of_an_allowed_class_is_not_run(tmp_path, make_legacy):
    canary = tmp_path / "canary"
    source = text("x.py"), text(f"open({str(canary)!r}, 'w').close()")
    cls = row(text("module"), name("torch.nn", "Linear"), *source) + b"Q"
    path = tmp_path / "model.pt"
    path.write_bytes(
        make_legacy(
            whole(cls + b")\x81" + table(_parameters=b"}", _buffers=b"}", _modules=b"}") + b"b")
        )
    )
    with pytest.raises(LoadError, match="without tensors"):
        open_artifact(path)
    assert not canary.exists()


def test_trailing_pickle_is_never_reached(tmp_path, make_zip):
    canary = tmp_path / "canary"
    path = tmp_path / "model.pt"
    path.write_bytes(make_zip(whole(b"}") + whole(system(str(canary)))))
    with pytest.raises(LoadError, match="follow the pickle"):
        open_artifact(path)
    assert not canary.exists()


def test_hostile_names_are_shortened_and_escaped(tmp_path):
    path = tmp_path / "model.pt"
    error = refused(path, whole(stack_name("x\x1b[31m" + "y" * 5000, "z\n")))
    assert error.global_name is not None and len(error.global_name) <= 200
    assert "\x1b" not in str(error) and "\n" not in str(error)
