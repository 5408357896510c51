"""Drives the console with Chromium: `browser.py SCENARIO --link LINK …`. It fails with an assertion.

`tests/it/gateway/browser.rs` starts it, one gateway for each scenario. With --pictures it writes
the pictures of the book.
"""

import argparse
import asyncio
import json
import re
import ssl
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import expect, sync_playwright

EXAMPLES = Path(__file__).resolve().parents[2] / "packages-examples"
FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
WIDE = {"width": 1280, "height": 860}
NARROW = {"width": 360, "height": 780}

# Texts that would do something as markup, as an address, as code, or as a style.
HOSTILE = [
    "<script>window.pwned=1</script>",
    "</script><script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    "<svg onload=window.pwned=1>",
    "<svg><script>window.pwned=1</script></svg>",
    "<body onload=window.pwned=1>",
    "<iframe srcdoc='<script>parent.pwned=1</script>'>",
    "<iframe src=javascript:parent.pwned=1>",
    "<object data=javascript:window.pwned=1>",
    "<embed src=javascript:window.pwned=1>",
    "<a href=javascript:window.pwned=1>click</a>",
    "<form action=javascript:window.pwned=1><button>Run</button></form>",
    "<input autofocus onfocus=window.pwned=1>",
    "<details open ontoggle=window.pwned=1>",
    "<video><source onerror=window.pwned=1></video>",
    "<math><mtext></mtext><mglyph><svg><mtext><style><img src=x onerror=window.pwned=1>",
    "<template><script>window.pwned=1</script></template>",
    "<style>*{display:none}</style>",
    "<link rel=stylesheet href=data:text/css,*{display:none}>",
    "<meta http-equiv=refresh content='0;url=javascript:window.pwned=1'>",
    "<base href=https://attacker.invalid/>",
    "javascript:window.pwned=1",
    " javascript:window.pwned=1",
    "JaVaScRiPt:window.pwned=1",
    "data:text/html,<script>window.pwned=1</script>",
    "'-window.pwned=1-'",
    '"-window.pwned=1-"',
    '" onmouseover="window.pwned=1',
    "' onmouseover='window.pwned=1",
    "`${window.pwned=1}`",
    "${window.pwned=1}",
    "{{constructor.constructor('window.pwned=1')()}}",
    "<%= window.pwned=1 %>",
    "--><script>window.pwned=1</script><!--",
    "]]><script>window.pwned=1</script>",
    "<!--<script>window.pwned=1</script>-->",
    "&lt;script&gt;window.pwned=1&lt;/script&gt;",
    "\\u003cscript\\u003ewindow.pwned=1\\u003c/script\\u003e",
    "<scr\0ipt>window.pwned=1</scr\0ipt>",
    "<x onclick=window.pwned=1 style=position:fixed;inset:0>",
    "<noscript><p title='</noscript><img src=x onerror=window.pwned=1>'>",
    "<textarea></textarea><script>window.pwned=1</script>",
    "<title></title><script>window.pwned=1</script>",
    "\u202e<script>window.pwned=1</script>",
    "\u2028window.pwned=1\u2029",
    "<plaintext>",
    "__proto__",
    "constructor",
    "[object Object]",
    "A" * 5000,
]

# Places whose texts steer the page, and are chosen by the server itself.
STEERING = {
    "account", "name", "state", "forms", "status", "severity", "dtype", "type", "mediaType",
    "purpose", "object", "encoding", "mask", "image", "backend", "precision", "schema", "createdAt", "date", "id",
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--chromium", required=True)
    parser.add_argument("--axe", required=True, type=Path)
    parser.add_argument("--link", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--pictures", type=Path)
    arguments = parser.parse_args()
    # Other tests may keep the processors busy.
    expect.set_options(timeout=60_000)
    with sync_playwright() as playwright:
        # The test's own process may be root, whose sandbox Chromium refuses.
        flags = ["--no-sandbox", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
        browser = playwright.chromium.launch(executable_path=arguments.chromium, args=flags)
        SCENARIOS[arguments.scenario](Console(browser, arguments))
        browser.close()


class Console:
    """A page of the console, with a count of clicks and of what went wrong in the browser."""

    def __init__(self, browser, arguments):
        self.browser = browser
        self.arguments = arguments
        self.link = arguments.link
        self.base = arguments.link.split("#")[0]
        self.faults = []
        self.clicks = 0
        self.page = None

    def open(self, size=WIDE, scheme="light", state=None, address=None, **options):
        if self.page:
            self.page.context.close()
        context = self.browser.new_context(
            viewport=size, color_scheme=scheme, storage_state=state, **options
        )
        self.page = context.new_page()
        self.page.set_default_timeout(60_000)
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("console", self.said)
        self.page.on("request", self.asked)
        self.page.goto(address or self.link)
        return self.page

    def said(self, message):
        # The browser reports failed requests, which a scenario may want.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.faults.append(f"{message.type}: {message.text}")

    def asked(self, request):
        own = urlsplit(self.page.url).netloc if self.page else ""
        there = urlsplit(request.url)
        if there.scheme in ("http", "https", "ws", "wss") and own and there.netloc != own:
            self.faults.append(f"a request to {request.url}")

    def go(self, path):
        self.page.goto(f"{self.base}#/{path}")

    def click(self, target):
        self.clicks += 1
        self.page.locator(target).first.click()

    def choose(self, target, file):
        with self.page.expect_file_chooser() as chooser:
            self.click(target)
        chooser.value.set_files(file)

    def see(self, text, timeout=60_000):
        expect(self.page.locator("main")).to_contain_text(text, timeout=timeout)

    def predict(self, service, body):
        """Creates a task with the page's session."""
        self.page.evaluate(
            """([service, body]) => fetch(`api/mlpgateway/account/local/model/${service}/async/predict`, {
              method: "POST", headers: { "x-pkgtool-console": "1" }, body,
            })""",
            [service, body],
        )

    def until(self, condition):
        """Waits; the page's policy forbids the waits of Playwright to evaluate texts."""
        for _ in range(600):
            if self.page.evaluate(condition):
                return
            self.page.wait_for_timeout(100)
        raise AssertionError(condition)

    def accessible(self, place):
        """No violation that axe calls serious or critical."""
        self.page.evaluate(self.arguments.axe.read_text())
        found = self.page.evaluate("async () => (await axe.run()).violations")
        serious = [
            (one["id"], one["nodes"][0]["html"], one["nodes"][0].get("failureSummary"))
            for one in found
            if one["impact"] in ("serious", "critical")
        ]
        assert not serious, (place, serious)

    def fits(self, place):
        width = self.page.evaluate("document.scrollingElement.scrollWidth")
        assert width <= self.page.viewport_size["width"], (place, width)

    def picture(self, name):
        if self.arguments.pictures:
            self.page.screenshot(path=self.arguments.pictures / f"console-{name}.png")

    def done(self):
        assert not self.faults, self.faults


# ---- The pages with real models ----


def walk(console):
    page = console.open()
    page.locator(".card").first.wait_for()
    assert "#login" not in page.url and console.arguments.link.split("=")[1] not in page.content()
    console.accessible("models")
    boxes(console)
    conversation(console)
    answers(console)
    variants(console)
    tasks(console)
    training(console)
    for name, text in ("packages", "served"), ("machine", "Processors, %"), ("accounts", "Usage of local"):
        console.go(name)
        console.see(text)
        console.accessible(name)
        if name == "machine":
            console.picture(name)
    keys(console)
    looks(console)
    console.done()


def boxes(console):
    """A newcomer with the link gets boxes on a photo in three clicks."""
    console.clicks = 0
    console.click("a:text-is('spotter_s')")
    console.choose("text=Choose a picture", EXAMPLES / "spotter" / "shapes.png")
    console.page.locator("canvas[data-drawn]").wait_for()
    assert console.clicks <= 3, console.clicks
    rows = console.page.locator("table tbody tr")
    assert rows.count() == 4, rows.all_inner_texts()
    console.see("triangle")
    assert "22,163,74" in colours(console.page), "the triangle's box is not drawn"
    console.accessible("boxes")
    console.picture("boxes")
    code = console.page.locator("section[aria-label^=Code] pre")
    assert "-F 'file=@shapes.png'" in code.inner_text()
    # Another picture shows its own boxes.
    console.choose("text=Choose a picture", EXAMPLES / "lookout" / "shapes.png")
    expect(console.page.locator("canvas")).not_to_have_attribute("width", "240")
    console.page.locator("canvas[data-drawn]").wait_for()
    assert "22,163,74" not in colours(console.page), "a box of the picture before is drawn"


def colours(page):
    """The colours of the pixels that the page has drawn."""
    return page.evaluate(
        """() => {
          const canvas = document.querySelector("canvas");
          const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
          copy.drawImage(canvas, 0, 0);
          const data = copy.getImageData(0, 0, canvas.width, canvas.height).data;
          const found = new Set();
          for (let at = 0; at < data.length; at += 4) found.add(data.slice(at, at + 3).join());
          return [...found];
        }"""
    )


def conversation(console):
    """A chat answer in two clicks; a stream can be stopped; the next message continues."""
    console.go("services")
    console.clicks = 0
    console.click("a:text-is('lookout')")
    console.page.locator(".chat form textarea").first.fill("Hello there")
    console.click("button:text-is('Send')")
    status = console.page.locator(".chat [role=status]")
    expect(status).to_contain_text("first after", timeout=60_000)
    assert console.clicks <= 2, console.clicks
    answer = console.page.locator(".message.assistant p").last.inner_text()
    assert answer.strip() and answer.strip() != "…", answer
    console.choose("text=Add a picture", EXAMPLES / "lookout" / "shapes.png")
    console.page.locator(".chat form textarea").first.fill("How many shapes are there?")
    console.page.keyboard.press("Enter")
    expect(console.page.locator(".message.assistant")).to_have_count(2)
    expect(status).to_contain_text("first after", timeout=60_000)
    assert console.page.locator(".message.user img").count() == 1
    console.accessible("chat")
    console.picture("chat")


def stopped(console):
    """An answer stops at a click, keeps what came, and the conversation goes on."""
    page = console.open()
    page.locator(".card").first.wait_for()
    console.go("services/local/chat")
    console.click("[role=tab]:text-is('Chat')")
    field = page.locator(".chat form textarea").first
    answer = page.locator(".message.assistant p").last
    for turn in range(2):
        field.fill("!pause in this answer")
        console.click("button:text-is('Send')")
        expect(answer).to_contain_text("this answer")
        console.click("button:text-is('Stop')")
        console.see("Stopped.")
        assert "this answer" in answer.inner_text(), turn
    field.fill("and a whole answer")
    console.click("button:text-is('Send')")
    expect(answer).to_contain_text("and a whole answer")
    field.fill("!status 429")
    console.click("button:text-is('Send')")
    page.locator(".failure").wait_for()
    field.fill("once more")
    console.click("button:text-is('Send')")
    expect(answer).to_contain_text("once more")
    console.done()


def answers(console):
    """Labels, classes, lines, a picture, words of a sound, speech, similarities, tensors."""
    page = console.page
    for service, file, text in (
        ("glimpse", "glimpse/shape.png", "%"),
        ("mosaic_nano", "mosaic/landscape.png", "Share"),
        ("readline_ocr", "readline-ocr/page.png", "Answer as JSON"),
        ("watercolor", "watercolor/landscape.png", "Answer as JSON"),
        ("twin_view", "twin-view/shape.png", "A vector of"),
        ("murmur_vad", "murmur-vad/words.wav", "From, s"),
        ("scribe_tiny_en", "scribe-tiny-en/words.wav", "seven three one"),
    ):
        console.go(f"services/local/{service}")
        kind = "sound" if file.endswith("wav") else "picture"
        console.choose(f"text=Choose a {kind}", EXAMPLES / file)
        console.see(text)
        console.accessible(service)
    console.go("services/local/parlor_tts_82m")
    page.locator("main textarea").first.fill("Good morning.")
    console.click("button:text-is('Run')")
    sound = page.locator("audio[aria-label='The speech']")
    sound.wait_for()
    console.until("document.querySelector('audio').duration > 0.1")
    console.go("services/local/hush_sentence")
    page.locator("main textarea").first.fill("a small dog\na big dog\na house")
    console.click("button:text-is('Run')")
    console.see("3 vectors of")
    assert page.locator("section[aria-label=Answer] tbody tr").count() == 3
    console.click("button:text-is('Tensors')")
    console.click("button:text-is('Run')")
    console.see("First values")
    field = page.locator("textarea.code")
    field.fill('{"inputs":[{"data":["x"]}]}')
    console.click("button:text-is('Run')")
    console.see("is not an integer")
    field.fill("{")
    assert page.locator("button:text-is('Run')").is_disabled()


def many(console):
    """A hundred thousand tasks: the server pages them, and every page comes at once."""
    page = console.open()
    page.locator(".card").first.wait_for()
    times = []
    asked = []
    page.on("response", lambda response: "console/tasks" in response.url and asked.append(response))
    began = time.monotonic()
    console.go("tasks")
    rows = page.locator("main tbody tr")
    expect(rows).to_have_count(50)
    times.append(time.monotonic() - began)
    seen = [page.locator("main tbody code").first.inner_text()]
    for target in ["Older"] * 4 + ["Newer"] * 4:
        began = time.monotonic()
        console.click(f"button:text-is('{target}')")
        expect(page.locator("main tbody code").first).not_to_have_text(seen[-1])
        times.append(time.monotonic() - began)
        expect(rows).to_have_count(50)
        seen.append(page.locator("main tbody code").first.inner_text())
    assert seen[:5] == seen[:3:-1], seen
    assert len(set(seen)) == 5, seen
    page.get_by_label("State").select_option("CANCELED")
    console.see("No tasks.")
    page.get_by_label("State").select_option("COMPLETED")
    expect(rows).to_have_count(50)
    assert asked and all(len(response.json()) <= 51 for response in asked), "a page is longer"
    # A task that comes while the page is open is shown with all others there.
    console.predict("hush_sentence", '{"inputs":[{"data":[[5,8,13]]}]}')
    expect(page.locator("main tbody code").first).not_to_have_text(seen[0])
    print(f"slowest page: {max(times) * 1000:.0f} ms")
    assert max(times) < 5, times
    console.accessible("many tasks")
    console.done()


def devices(console):
    """A sound from the microphone and a picture from the camera, both of the browser's own making."""
    page = console.open()
    page.locator(".card").first.wait_for()
    console.go("services/local/murmur_vad")
    for _ in range(2):
        console.click("button:text-is('Record')")
        page.wait_for_timeout(1500)
        console.click("button:text-is('Stop recording')")
        console.see("answered in")
        assert page.locator("main .failure").count() == 0, page.locator("main .failure").all_inner_texts()
        page.locator("audio").wait_for()
        page.locator("canvas.wave[data-drawn]").wait_for()
    console.see("recording.webm")
    console.go("services/local/spotter_s")
    console.click("button:text-is('Camera')")
    page.locator("video").wait_for()
    console.until("document.querySelector('video')?.videoWidth > 0")
    console.click("button:text-is('Close')")
    expect(page.locator("video")).to_have_count(0)
    console.click("button:text-is('Camera')")
    console.until("document.querySelector('video')?.videoWidth > 0")
    console.click("button:text-is('Take the picture')")
    page.locator("canvas[data-drawn]").wait_for()
    console.see("camera.jpg")
    assert page.locator("main .failure").count() == 0
    console.done()


def batch(console):
    """A file of requests runs, fails by line, is cancelled, and is another account's, too."""
    page = console.open()
    console.go("batches")
    console.see("No batch yet.")
    console.accessible("no batches")
    chat = "/v1/chat/completions"

    def lines(*texts):
        bodies = [{"model": "local/chat", "messages": [{"role": "user", "content": text}]} for text in texts]
        lines = [{"custom_id": str(at), "method": "POST", "url": chat, "body": body} for at, body in enumerate(bodies)]
        return "\n".join(json.dumps(line) for line in lines).encode()

    def start(name, content):
        page.locator("input[type=file]").set_input_files({"name": name, "mimeType": "text/plain", "buffer": content})
        console.click("button:text-is('Run')")

    badges = page.locator("main table .badge")
    start("good.jsonl", lines("one", "two", "!status 400"))
    expect(badges).to_have_text(["completed"])
    console.see("3 of 3, 1 failed")
    with page.expect_download() as download:
        console.click("a:text-is('Answers')")
    answers = [json.loads(line) for line in Path(download.value.path()).read_text().splitlines()]
    texts = {one["custom_id"]: one["response"]["body"]["choices"][0]["message"]["content"] for one in answers}
    assert sorted(texts) == ["0", "1"] and "one" in texts["0"], texts
    with page.expect_download() as download:
        console.click("a:text-is('Failures')")
    assert json.loads(Path(download.value.path()).read_text())["custom_id"] == "2"
    start("bad.jsonl", b'{"custom_id":1}\n<script>window.pwned=1</script>')
    expect(badges).to_have_text(["failed", "completed"])
    console.see("line 2")
    start("slow.jsonl", lines("!stay"))
    expect(badges.first).to_have_text("in progress")
    console.click("button:text-is('Cancel')")
    expect(badges).to_have_text(["cancelled", "failed", "completed"])
    console.accessible("batches")
    console.fits("batches")
    file = page.locator("tr", has_text="good.jsonl")
    file.locator("button:text-is('Delete')").click()
    expect(file).to_have_count(0)
    # The operator sees another account's batches: none. The choice holds after a reload.
    page.get_by_label("Account").select_option("acme")
    console.see("No batch yet.")
    page.reload()
    console.see("No batch yet.")
    other = page.context.new_page()
    other.goto(f"{console.base}#/batches")
    other.get_by_label("Account").select_option("local")
    expect(other.locator("main table .badge")).to_have_count(3)
    other.close()
    page.bring_to_front()
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(badges).to_have_text(["cancelled", "failed", "completed"])
    assert page.evaluate("window.pwned") is None
    console.done()


def variants(console):
    page = console.page
    console.go("services/local/glimpse")
    console.choose("text=Choose a picture", EXAMPLES / "glimpse" / "shape.png")
    console.see("answered in")
    console.click("button:text-is('Compare variants')")
    table = page.locator("section[aria-label^=Comparison]")
    expect(page.locator("button:text-is('Compare variants')")).to_be_enabled()
    text = table.inner_text()
    assert "the reference" in text and "the same label" in text, text
    console.accessible("variants")


def tasks(console):
    """Tasks appear and end while the page is open; one is cancelled, one is deleted."""
    page = console.page
    console.go("tasks")
    made = 3
    for _ in range(made):
        console.predict("hush_sentence", '{"inputs":[{"data":[[5,8,13]]}]}')
    expect(page.locator(".badge:text-is('completed')")).to_have_count(made)
    console.click("button:text-is('Result')")
    console.see('"outputs"')
    console.accessible("tasks")
    console.click("button:text-is('Delete')")
    expect(page.locator(".badge:text-is('completed')")).to_have_count(made - 1)
    page.get_by_label("State").select_option("CANCELED")
    console.see("No tasks.")


def training(console):
    """A dataset becomes a service, to the end."""
    page = console.page
    console.go("training")
    page.locator("input[type=file]").set_input_files(FIXTURES / "train" / "topics.jsonl")
    console.click("button:text-is('Upload')")
    console.see("topics.jsonl")
    form = page.locator("form").nth(1)
    form.locator("select[name=base]").select_option(label="hush_sentence")
    form.locator("input[name=name]").fill("topics")
    console.click("button:text-is('Train')")
    page.locator(".badge:text-is('success')").wait_for(timeout=120_000)
    console.click("button:text-is('Details')")
    console.see("Confusion")
    console.accessible("training")
    console.go("services/local/topics")
    page.locator("main textarea").first.fill("a text")
    console.click("button:text-is('Run')")
    console.see("%")


def keys(console):
    page = console.page
    console.go("accounts")
    page.locator("form input[name=key]").fill("page")
    console.click("button:text-is('Create the key')")
    console.see("shown only this once")
    secret = page.locator(".notice code").inner_text()
    assert secret.startswith("pk_"), secret
    console.click("button:text-is('Hide')")
    assert secret not in page.content()
    row = page.locator("tr", has_text="page").first
    row.locator("button:text-is('Revoke')").click()
    expect(row.locator(".badge")).to_have_text("revoked")


def looks(console):
    """Dark, narrow and by keyboard."""
    state = console.page.context.storage_state()
    for scheme, size in ("dark", WIDE), ("light", NARROW), ("dark", NARROW):
        console.open(size, scheme, state, console.base)
        for name in (
            "services", "services/local/spotter_s", "services/local/lookout", "services/local/hush_sentence",
            "tasks", "batches", "training", "packages", "machine", "accounts",
        ):
            console.go(name)
            console.page.wait_for_timeout(300)
            console.accessible((scheme, name))
            console.fits((size, name))
    page = console.open(WIDE, "light", state, console.base)
    page.locator(".card").first.wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.locator("a:text-is('lookout')").focus()
    page.keyboard.press("Enter")
    page.locator("[role=tab]").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("[role=tab][aria-selected=true]").first.inner_text() == "Picture"


# ---- Who comes in ----


def doors(console):
    """A wrong key, a key, a used link, a session that ends under the page."""
    page = console.open(address=console.base)
    console.see("Log in")
    console.accessible("login")
    page.get_by_label("API key").fill("pk_wrong")
    console.click("button:text-is('Log in')")
    console.see("unknown, expired or revoked")
    page.get_by_label("API key").fill(console.arguments.key)
    console.click("button:text-is('Log in')")
    page.locator(".card").first.wait_for()
    names = page.locator("nav li").all_inner_texts()
    assert "Machine" not in names and "Tasks" in names, names
    stored = page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])")
    assert stored == '[{},{},""]', stored
    console.click("button:text-is('Log out')")
    console.see("Log in")
    page.reload()
    console.see("Log in")
    console.open()
    console.page.locator(".card").first.wait_for()
    assert "Machine" in console.page.locator("nav li").all_inner_texts()
    # The link was used.
    console.open()
    console.see("already used")
    console.done()


def expired(console):
    """The session ends while the page is open: it asks for a login, and says why."""
    page = console.open()
    page.locator(".card").first.wait_for()
    console.go("tasks")
    console.see("The session has ended")
    console.see("API key")
    console.done()


def restarted(console):
    """The page connects again after a restart, without a login, and shows what changed."""
    page = console.open()
    page.locator(".card").first.wait_for()
    for _ in range(2):
        # The test stops the server, and starts it at the next line.
        print("stop", flush=True)
        sys.stdin.readline()
        console.see("The server does not answer")
        print("start", flush=True)
        sys.stdin.readline()
        expect(page.locator(".notice")).to_have_count(0)
        page.locator(".card").first.wait_for()
    console.go("tasks")
    console.see("No tasks.")
    console.predict("hush_sentence", '{"inputs":[{"data":[[5,8,13]]}]}')
    page.locator(".badge:text-is('completed')").wait_for()
    faults = [fault for fault in console.faults if "ERR_" not in fault]
    assert not faults, faults


# ---- Hostile texts ----


def hostile(console):
    """Every text of every answer that the page reads is hostile; none becomes markup."""
    page = console.open()
    page.locator(".card").first.wait_for()
    tags = set()
    current = {}

    def poisoned(value, key=None):
        if isinstance(value, dict):
            return {name: poisoned(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [poisoned(inner, key) for inner in value]
        if isinstance(value, str) and key not in STEERING:
            return f"{current['text']} {value}"
        return value

    def change(route):
        if route.request.method == "GET" or "/predict" in route.request.url:
            response = route.fetch()
            if "json" in response.headers.get("content-type", ""):
                body = poisoned(response.json())
                if "/session" in route.request.url:
                    body["account"] = "local"
                return route.fulfill(response=response, body=json.dumps(body))
            return route.fulfill(response=response)
        return route.continue_()

    # Streams cannot be fetched whole.
    page.route(re.compile(r"/(console/(?!events|files)|api/)"), change)
    for text in HOSTILE:
        current["text"] = text
        for name in ("services", "services/local/spotter_s", "tasks", "batches", "training", "packages", "accounts", "machine"):
            console.go(name)
            page.locator("h1").first.wait_for()
            page.wait_for_timeout(60)
            if name == "services/local/spotter_s":
                page.locator("input[type=file]").set_input_files(EXAMPLES / "spotter" / "shapes.png")
                page.locator("canvas[data-drawn]").wait_for()
                shown = page.locator("section[aria-label=Answer] td").first.inner_text()
                assert "triangle" in shown, shown
            tags |= set(page.evaluate("[...document.querySelectorAll('#app *')].map((it) => it.localName)"))
            assert page.evaluate("window.pwned") is None, (text, name)
    strange = tags & {"script", "iframe", "object", "embed", "style", "link", "base", "svg", "math", "x", "plaintext", "template", "source", "noscript"}
    assert not strange, strange
    attributes = page.evaluate(
        "[...document.querySelectorAll('#app *')].flatMap((it) => it.getAttributeNames()).filter((it) => it.startsWith('on'))"
    )
    assert not attributes, attributes
    links = page.evaluate("[...document.querySelectorAll('a[href]')].map((it) => it.protocol)")
    assert set(links) <= {"http:"}, links
    console.done()


# ---- Behind a proxy ----


def prefix(console):
    """The page works below a path of a TLS proxy; its cookie is for that path, and secure."""
    with proxy(console.base, "/models") as address:
        console.base = address
        page = console.open(address=address + "#" + console.link.split("#")[1], ignore_https_errors=True)
        page.locator(".card").first.wait_for()
        [cookie] = page.context.cookies()
        assert cookie["secure"] and cookie["httpOnly"] and cookie["sameSite"] == "Strict", cookie
        assert cookie["path"] == "/models", cookie
        console.click("a:text-is('spotter_s')")
        console.choose("text=Choose a picture", EXAMPLES / "spotter" / "shapes.png")
        page.locator("canvas[data-drawn]").wait_for()
        assert f"{address}api/mlpgateway" in page.locator("section[aria-label^=Code] pre").inner_text()
        console.go("machine")
        # Events arrive through the proxy.
        console.see("Processors, %")
        page.goto(address + "docs")
        expect(page.locator("rapi-doc")).to_contain_text("Cancel a task")
        console.done()


@contextmanager
def proxy(base, below):
    """A TLS proxy that serves the gateway below a path."""
    there = urlsplit(base)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(FIXTURES / "tls" / "certificate.pem", FIXTURES / "tls" / "key.pem")

    async def pipe(reader, writer):
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def serve(reader, writer):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            method, path, rest = head.split(b" ", 2)
            assert path.startswith(below.encode() + b"/"), path
            rest = re.sub(rb"(?i)\r\nconnection:[^\r]*", b"", rest)
            rest = rest.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
            upstream, onward = await asyncio.open_connection(there.hostname, there.port)
            onward.write(b" ".join([method, path[len(below):], rest]))
            await asyncio.gather(pipe(reader, onward), pipe(upstream, writer))
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    loop = asyncio.new_event_loop()
    started = {}
    ready = threading.Event()

    def run():
        asyncio.set_event_loop(loop)
        server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0, ssl=context))
        started["port"] = server.sockets[0].getsockname()[1]
        ready.set()
        loop.run_forever()

    threading.Thread(target=run, daemon=True).start()
    ready.wait()
    yield f"https://localhost:{started['port']}{below}/"
    loop.call_soon_threadsafe(loop.stop)


# ---- Speed ----


def paint(console):
    """The first paint, after the connection is warm, as the browser measures it."""
    page = console.open()
    page.locator(".card").first.wait_for()
    times = []
    for _ in range(7):
        page.reload()
        page.locator(".card").first.wait_for()
        times.append(
            page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0")
        )
    times.sort()
    print(f"first paint: {times[len(times) // 2]:.0f} ms ({times[0]:.0f} to {times[-1]:.0f})")
    console.done()


SCENARIOS = {
    "walk": walk,
    "stopped": stopped,
    "many": many,
    "devices": devices,
    "batch": batch,
    "doors": doors,
    "expired": expired,
    "restarted": restarted,
    "hostile": hostile,
    "prefix": prefix,
    "paint": paint,
}

if __name__ == "__main__":
    main()
