"""A page in headless Chromium at an exact width and colour scheme, where its command line gives 500 or more."""

import base64
import itertools
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"]


def open_at(
    chromium: str, folder: Path, url: str, views: list[tuple[int, str]], ask: str
) -> list[tuple[Any, bytes]]:
    """Open a page at each (width, "light" or "dark"): the value of an expression there, and its first screen as PNG."""
    seen = []
    with _browser(chromium, folder) as send:
        target = send("Target.createTarget", url="about:blank")["targetId"]
        session = send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        send("Page.enable", session)
        for width, theme in views:
            scheme = {"name": "prefers-color-scheme", "value": theme}
            send("Emulation.setEmulatedMedia", session, features=[scheme])
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            send("Emulation.setDeviceMetricsOverride", session, **size)
            send("Page.navigate", session, wait_for="Page.loadEventFired", url=url)
            value = send("Runtime.evaluate", session, expression=ask, returnByValue=True)["result"][
                "value"
            ]
            seen.append((value, base64.b64decode(send("Page.captureScreenshot", session)["data"])))
    return seen


@contextmanager
def _browser(chromium: str, folder: Path) -> Iterator[Any]:
    """Start the browser; yields send(method, session, wait_for=event, **parameters) -> result."""
    (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()

    words = [chromium, *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}"]
    as_3_and_4 = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'  # where Chromium reads and writes
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(
        ["bash", "-c", as_3_and_4, "bash", *words], pass_fds=(theirs_in, theirs_out), **quiet
    )
    os.close(theirs_in), os.close(theirs_out)
    numbers = itertools.count(1)
    with os.fdopen(ours_out, "wb", buffering=0) as out, os.fdopen(ours_in, "rb") as inbox:

        def send(
            method: str, session: str | None = None, wait_for: str | None = None, **parameters
        ) -> dict:
            number = next(numbers)
            message = {"id": number, "method": method, "params": parameters}
            message |= {"sessionId": session} if session else {}
            out.write(json.dumps(message).encode() + b"\0")
            result, happened = None, wait_for is None
            while result is None or not happened:
                text = b"".join(iter(lambda: inbox.read(1), b"\0"))
                answer = json.loads(text)
                assert "error" not in answer, answer
                result = answer["result"] if answer.get("id") == number else result
                happened = happened or answer.get("method") == wait_for
            return result

        yield send
        send("Browser.close")
    process.wait(timeout=60)
