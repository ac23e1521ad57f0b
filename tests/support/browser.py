"""A page in headless Chromium: what an expression is there, a picture, what it complains of."""

import base64
import itertools
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"]


@dataclass(frozen=True)
class Visit:
    """The value of the expression, the first screen as PNG, and what the browser complained of."""

    value: Any
    picture: bytes
    log: list[str]


def visit(
    page: Path, ask: str = "null", fragment: str = "", width: int = 1280, theme: str = "light"
) -> Visit:
    """Open a file at an exact width and colour scheme; the command line's least is 500 pixels."""
    if CHROMIUM is None:
        pytest.skip("no Chromium here (Debian: apt-get install chromium)")
    (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
    profile = f"--user-data-dir={page.parent / 'chromium'}"
    words = [CHROMIUM, *FLAGS, "--remote-debugging-pipe", profile]
    as_3_and_4 = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'  # where Chromium reads and writes
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(
        ["bash", "-c", as_3_and_4, "bash", *words], pass_fds=(theirs_in, theirs_out), **quiet
    )
    os.close(theirs_in), os.close(theirs_out)
    numbers, log, session = itertools.count(1), [], {}
    with os.fdopen(ours_out, "wb", buffering=0) as out, os.fdopen(ours_in, "rb") as inbox:

        def send(method: str, wait_for: str | None = None, **parameters: Any) -> dict:
            """Send a command; its result, once it and the event that is waited for are here."""
            number = next(numbers)
            message = {"id": number, "method": method, "params": parameters, **session}
            out.write(json.dumps(message).encode() + b"\0")
            result, happened = None, wait_for is None
            while result is None or not happened:
                answer = json.loads(b"".join(iter(lambda: inbox.read(1), b"\0")))
                assert "error" not in answer, answer
                if answer.get("method") == "Log.entryAdded":
                    log.append(answer["params"]["entry"]["text"])
                if answer.get("method") == "Runtime.exceptionThrown":
                    log.append(str(answer["params"]))
                result = answer["result"] if answer.get("id") == number else result
                happened = happened or answer.get("method") == wait_for
            return result

        target = send("Target.createTarget", url="about:blank")["targetId"]
        attached = send("Target.attachToTarget", targetId=target, flatten=True)
        session["sessionId"] = attached["sessionId"]
        for domain in ("Page", "Log", "Runtime"):
            send(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": theme}
        send("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        send("Emulation.setDeviceMetricsOverride", **size)
        send("Page.navigate", wait_for="Page.loadEventFired", url=page.as_uri() + fragment)
        found = send("Runtime.evaluate", expression=ask, returnByValue=True)
        assert "exceptionDetails" not in found, found
        picture = base64.b64decode(send("Page.captureScreenshot")["data"])
        session.clear()
        send("Browser.close")
    process.wait(timeout=60)
    return Visit(found["result"].get("value"), picture, log)
