"""Headless Chromium, driven over a pipe by its DevTools protocol."""

import contextlib
import json
import os
import select
import shutil
import subprocess
from pathlib import Path

from serving import PATIENCE, until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Chromium:
    """One headless browser; https://chromedevtools.github.io/devtools-protocol tells its commands and events."""

    def __init__(self, folder: Path):
        os.mkfifo(folder / "commands")
        os.mkfifo(folder / "replies")
        # Chromium reads commands from file 3 and writes replies to file 4.
        command = ["sh", "-c", 'exec "$@" 3<"$0/commands" 4>"$0/replies"', str(folder), CHROMIUM, "--headless"]
        command += ["--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--remote-debugging-pipe"]
        command += [f"--user-data-dir={folder / 'profile'}", "--disable-background-networking"]
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.commands = open(folder / "commands", "wb")  # noqa: SIM115
        self.replies = os.open(folder / "replies", os.O_RDONLY)
        self.received, self.count, self.events = b"", 0, []

    def message(self) -> dict:
        """Waits for the next reply or event."""
        while b"\0" not in self.received:
            assert select.select([self.replies], [], [], PATIENCE)[0], "Chromium says nothing"
            more = os.read(self.replies, 1 << 20)
            assert more, f"Chromium has ended: {self.log.read_text(errors='replace')[-2000:]}"
            self.received += more
        first, _, self.received = self.received.partition(b"\0")
        return json.loads(first)

    def call(self, method: str, session: str | None = None, **parameters) -> dict:
        """Sends a command and returns its result; the events that come before it are kept."""
        self.count += 1
        command = {"id": self.count, "method": method, "params": parameters}
        self.commands.write(json.dumps(command | ({"sessionId": session} if session else {})).encode() + b"\0")
        self.commands.flush()
        while (message := self.message()).get("id") != self.count:
            self.events.append(message)
        assert "error" not in message, (method, message)
        return message["result"]

    def end(self) -> None:
        with contextlib.suppress(OSError):  # it is broken if Chromium has ended
            self.commands.close()
        try:
            self.process.wait(timeout=PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()
            os.close(self.replies)


class Page:
    """One tab with a storage of its own. In its scripts `$` finds the first element of a selector."""

    def __init__(self, browser: Chromium, url: str):
        self.browser, self.url = browser, url
        self.context = browser.call("Target.createBrowserContext")["browserContextId"]
        made = browser.call("Target.createTarget", url="about:blank", browserContextId=self.context)
        self.session = browser.call("Target.attachToTarget", targetId=made["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        self.call("Page.addScriptToEvaluateOnNewDocument", source="window.$ = (s) => document.querySelector(s);")
        self.look(1000)
        self.load()

    def call(self, method: str, **parameters) -> dict:
        return self.browser.call(method, self.session, **parameters)

    def events(self, method: str) -> list[dict]:
        """The parameters of this page's events so far."""
        mine = [event for event in self.browser.events if event.get("sessionId") == self.session]
        return [event["params"] for event in mine if event["method"] == method]

    def load(self) -> None:
        """Opens the page, or opens it again, and waits until it knows the model."""
        loader = self.call("Page.navigate", url=self.url)["loaderId"]

        def is_loaded() -> bool:
            self.call("Runtime.getIsolateId")  # receives the events up to here
            return any((e["loaderId"], e["name"]) == (loader, "load") for e in self.events("Page.lifecycleEvent"))

        until(is_loaded, "the page's load")
        self.wait("$('#modelName').textContent && $('#status').textContent.includes('context')")

    def look(self, width: int, dark: bool = False) -> None:
        """Sets the size of the window and the colour scheme of the system."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def run(self, script: str):
        """The value of an expression, or what its promise becomes."""
        done = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, (script, done)
        return done["result"].get("value")

    def wait(self, condition: str) -> None:
        """Polls in the page until this expression is true."""
        is_true = self.run(
            f"""new Promise((done) => {{
              const end = performance.now() + {PATIENCE * 500};
              const poll = () => ({condition}) ? done(true)
                : performance.now() > end ? done(false) : setTimeout(poll, 5);
              poll();
            }})"""
        )
        assert is_true, (condition, self.run("document.body.innerText"))

    def click(self, selector: str) -> None:
        """Presses the mouse in the middle of an element, whatever lies there."""
        x, y = self.run(
            f"""(() => {{
              $({selector!r}).scrollIntoView({{ block: 'nearest' }});
              const box = $({selector!r}).getBoundingClientRect();
              return [box.x + box.width / 2, box.y + box.height / 2];
            }})()"""
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def fill(self, selector: str, text: str) -> None:
        """Types over what a field has."""
        self.run(f"$({selector!r}).focus(), $({selector!r}).select()")
        self.call("Input.insertText", text=text)

    def press_enter(self) -> None:
        for kind, text in (("keyDown", "\r"), ("keyUp", "")):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text=text, windowsVirtualKeyCode=13
            )

    def say(self, text: str) -> None:
        """Sends a message and waits for the end of its answer."""
        answers = self.run("document.querySelectorAll('.answer').length")
        self.fill("#message", text)
        self.click("#send")
        self.wait(f"document.querySelectorAll('.answer').length === {answers + 1}")
        self.wait_for_the_end()

    def wait_for_the_end(self) -> None:
        self.wait("!$('#send').hidden && $('#stop').hidden && !$('[aria-busy=true]')")

    def answer(self) -> dict:
        """The text, the HTML and the remarks of the last answer."""
        return self.run(
            """(() => {
              const last = [...document.querySelectorAll('.answer')].at(-1);
              const body = last.querySelector('.markdown');
              const remarks = last.querySelector('[data-part=remarks]').textContent;
              return { text: body.textContent, html: body.innerHTML, remarks };
            })()"""
        )

    def complaints(self) -> list:
        """Exceptions, errors that the console tells, and requests to anywhere but the server."""
        asked = [event["request"]["url"] for event in self.events("Network.requestWillBeSent")]
        assert self.url in asked
        elsewhere = [url for url in asked if not url.startswith(self.url)]
        entries = [event["entry"] for event in self.events("Log.entryAdded")]
        logged = [entry["text"] for entry in entries if entry["level"] in ("warning", "error")]
        return self.events("Runtime.exceptionThrown") + logged + elsewhere

    def close(self) -> None:
        self.browser.call("Target.disposeBrowserContext", browserContextId=self.context)
        self.browser.events.clear()
