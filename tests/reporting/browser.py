"""Chromium without a window, driven over its DevTools pipe; no package beyond the browser itself.

Protocol: https://chromedevtools.github.io/devtools-protocol/, messages in JSON, each ended by NUL.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_KEYS = {"Enter": (13, "\r"), "ArrowDown": (40, ""), "ArrowUp": (38, ""), "Escape": (27, ""),
         "Tab": (9, ""), "Home": (36, ""), "End": (35, ""), " ": (32, " ")}  # fmt: skip


def executable() -> str | None:
    """Path of a browser, None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page of one browser; use as a context manager."""

    def __init__(self, timeout: float = 60.0):
        self._timeout = timeout
        self._number = 0
        self._buffer = b""
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        down, self._write = os.pipe()
        self._read, up = os.pipe()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
                   "--no-first-run", "--disable-extensions", "--disable-dev-shm-usage",
                   "--hide-scrollbars", f"--user-data-dir={self._profile.name}"]  # fmt: skip
        # The browser reads messages from descriptor 3 and writes to 4, whatever ours are called.
        script = f'exec "$0" "$@" 3<&{down} 4>&{up}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, executable() or "chromium", *options],
            pass_fds=(down, up),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(down)
        os.close(up)
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        return self

    def __exit__(self, *fault) -> None:
        self._process.terminate()
        self._process.wait()
        os.close(self._read)
        os.close(self._write)
        self._profile.cleanup()

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its result. Raises RuntimeError if the browser refuses or is gone."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], self._timeout)
            part = os.read(self._read, 2**20) if ready else b""
            if not part:
                raise RuntimeError(f"the browser is silent (status {self._process.poll()})")
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)

    def open(self, page: Path, fragment: str = "") -> float:
        """Open a report; seconds from the start of loading until its script has run and painted."""
        self.events.clear()
        self.send("Page.navigate", url="about:blank")
        started = time.perf_counter()
        self.send("Page.navigate", url=page.resolve().as_uri() + fragment)
        ready = "document.documentElement && document.documentElement.dataset.ready === 'true'"
        while not self.run(ready):
            if time.perf_counter() - started > self._timeout:
                raise RuntimeError("the page's script has not come to its end")
            time.sleep(0.02)
        self.run("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")
        return time.perf_counter() - started

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        answer = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """A key, as the keyboard sends it."""
        code, text = _KEYS[key] if key in _KEYS else (ord(key.upper()), key)
        event = {"key": key, "windowsVirtualKeyCode": code}
        self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **event)
        self.send("Input.dispatchKeyEvent", type="keyUp", **event)

    def type(self, text: str) -> None:
        """Text into what has the focus."""
        self.send("Input.insertText", text=text)

    def resize(self, width: int, height: int = 900) -> None:
        """Size of the viewport in CSS pixels."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)  # fmt: skip

    def prefer(self, scheme: str) -> None:
        """ "light" or "dark"."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.send("Emulation.setEmulatedMedia", features=features)

    def picture(self, path: Path, whole: bool = True) -> None:
        """A screenshot as PNG."""
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def complaints(self) -> list[Any]:
        """Console errors, uncaught exceptions, refused content, since the page was opened."""
        self.run("0")
        wanted = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
        return [event["params"] for event in self.events if event.get("method") in wanted]

    def requests(self) -> list[str]:
        """Addresses that were asked for, since the page was opened."""
        sent = [e for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]
