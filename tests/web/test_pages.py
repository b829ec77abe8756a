"""The pages in a real browser: every page works, by keyboard too, and hostile names stay text."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

from rulewright.inject.atoms.reports import InjectionReport, Reason, ReportedChange, RuleEffect, write_reports
from rulewright.logic import quote

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium"),
]
playwright_api = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright: the extra dev")
playwright_api.expect.set_options(timeout=60_000)
pytest.importorskip("nicegui", reason="the explorer needs the extra web")

SCRIPT = "<script>window.hacked = 1</script>"
IMAGE = '"><img src=x onerror="window.hacked = 1">'
TURNED = "\u202egnp.exe"
NAMES = (SCRIPT, IMAGE, TURNED, "שלום", 'it\'s "so"', "{{ window.hacked = 1 }}", "\ud800half", "javascript:alert(1)")
RULES = f"""% hostile, but mine
0.9 :: grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).
0.75 :: parent_of(X, Z) :- spouse_of(X, Y), parent_of(Y, Z). @{{support: 3, body: 4, coverage: 0.5}}
0.5 :: {quote(SCRIPT)}(X, {quote(IMAGE)}) :- parent_of(X, {quote(TURNED)}).
"""


def facts() -> str:
    lines = ["parent_of(ann, bob).", "parent_of(bob, cid).", "spouse_of(al, ann).", "male(bob).", "age(ann, 42)."]
    lines += [f"parent_of(bob, {quote(name)})." for name in NAMES] + [f"likes({quote(name)}, bob)." for name in NAMES]
    lines.append(f"{quote(SCRIPT)}(bob, {quote(IMAGE)}).")
    return "\n".join(lines)


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def served(folder, *options):
    """Start the explorer on a free port; give its address and the process."""
    port = free_port()
    command = [sys.executable, "-m", "rulewright", "serve", "a.rules", "a.facts", "--port", str(port), *options]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    with (folder / f"{port}.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, env=plain)
    address = f"http://127.0.0.1:{port}"
    for _ in range(600):
        try:
            urllib.request.urlopen(address, timeout=5).close()
            break
        except urllib.error.HTTPError:  # it answers, though not to everyone
            break
        except OSError:
            if process.poll() is not None:
                raise AssertionError((folder / f"{port}.log").read_text()) from None
            time.sleep(0.1)
    return address, process


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    (folder / "a.rules").write_text(RULES, encoding="utf-8")
    (folder / "a.facts").write_text(facts(), encoding="utf-8")
    changes = (
        ReportedChange("parent_of", ("ann", SCRIPT), 0.25, 0.875, (Reason("p(X) :- q(X).", f"X = {IMAGE}", 1.5),)),
        ReportedChange("label", ("t1",), 0.75, 0.125, (), "o"),
    )
    effect = RuleEffect(f"hard p(X) => q(X). % {SCRIPT}", "q", 4321, 0.5, -3.25, "q(ann)", 7, 12, 5)
    reports = [
        InjectionReport(SCRIPT, "decoder", "two changes", changes),
        InjectionReport("the whole batch", "layer", effects=(effect,)),
    ]
    write_reports(reports, folder / "report.json")
    return folder


@pytest.fixture(scope="module")
def address(folder):
    address, process = served(folder, "--report", "report.json")
    yield address
    process.terminate()
    process.wait(timeout=60)


@pytest.fixture(scope="module")
def browser():
    with playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser, address):
    context = browser.new_context(base_url=address, viewport={"width": 1200, "height": 850})
    page = context.new_page()
    page.set_default_timeout(60_000)
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("dialog", lambda dialog: faults.append(f"a dialog: {dialog.message}"))
    yield page
    assert page.evaluate("window.hacked") is None
    assert faults == []
    context.close()


def opened(page, path):
    """Open a page, again as long as it says that rules are being applied: it would not show what they infer."""
    for _ in range(120):
        page.goto(path)
        page.wait_for_function("window.socket && window.socket.connected")
        if not page.get_by_text("the rules are still being applied").count():
            return page
        page.wait_for_timeout(500)
    raise AssertionError("the rules are still being applied after a minute")


def test_the_table_searches_and_orders(page):
    opened(page, "/")
    rows = page.locator("tbody tr")
    playwright_api.expect(rows).to_have_count(3)
    assert "If X is a parent of Y and Y is a parent of Z" in rows.nth(0).inner_text()
    assert rows.nth(1).locator(".rw-bar").get_attribute("aria-label") == "3 examples, 1 counterexamples"
    page.keyboard.press("/")
    page.keyboard.type("spouse")
    page.wait_for_function("document.querySelectorAll('tbody tr').length === 1")
    page.locator("input[type=search]").fill("")
    page.wait_for_function("document.querySelectorAll('tbody tr').length === 3")
    page.get_by_label("Order by").click()
    page.get_by_role("option", name="confidence").click()
    page.wait_for_function("document.querySelector('tbody tr').innerText.includes('script')")


def test_edit_switch_off_and_save(page, folder):
    opened(page, "/")
    page.get_by_label("edit rule 1").click()
    field = page.locator("textarea")
    field.fill("0.8 :: grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y")
    page.get_by_text("found the end of the text").wait_for()
    assert page.get_by_role("button", name="Change").is_disabled()
    page.get_by_role("button", name="Close").click()
    page.get_by_label("edit rule 1").click()
    assert page.locator("textarea").input_value().endswith("parent_of(Y"), "what cannot be read yet is kept"
    page.locator("textarea").fill("0.8 :: grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).")
    page.get_by_role("button", name="Change").click()
    page.get_by_label("rule 2 on or off").click()
    page.locator("tr.rw-off").wait_for()
    page.get_by_role("button", name="Save").click()
    page.get_by_text("Saved; the version before is a.rules.1").wait_for()
    saved = (folder / "a.rules").read_text(encoding="utf-8")
    assert "0.8 :: grandparent_of" in saved and "\n%off 0.75 :: parent_of" in saved and "% hostile, but mine" in saved
    assert (folder / "a.rules.1").read_text(encoding="utf-8") == RULES
    (folder / "a.rules").write_text(RULES, encoding="utf-8")
    page.get_by_text("Reload takes it up").wait_for()
    page.get_by_role("button", name="Save").click()
    page.get_by_text("a.rules has changed on disk").wait_for()
    page.get_by_role("button", name="Leave it").click()
    page.get_by_role("button", name="Reload").click()
    page.wait_for_function("!document.querySelector('tr.rw-off')")


def test_a_rule_and_its_cases(page):
    opened(page, "/rule/0")
    playwright_api.expect(page.locator("svg.rw-picture circle")).to_have_count(3)
    assert page.locator("p").first.inner_text().startswith("If X is a parent of Y")
    cases = page.locator("ol").nth(1).locator("li")
    playwright_api.expect(cases).to_have_count(9)
    assert SCRIPT in page.locator("ol").nth(1).inner_text()
    page.get_by_role("link", name="ann").first.click()
    page.locator("h1", has_text="ann").wait_for()
    opened(page, "/rule/99")
    assert "unknown rule" in page.get_by_role("alert").inner_text()


def test_the_graph_is_walked(page):
    opened(page, "/graph")
    assert page.locator("h1").inner_text() == "bob"
    page.locator("path.rw-known").first.wait_for(state="attached")
    page.locator("path.rw-inferred").first.wait_for(state="attached")
    page.get_by_label("ann (known)").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/graph?entity=*")
    page.locator("h1", has_text="ann").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("<SCRIPT")
    entries = page.get_by_role("list", name="entities found").get_by_role("listitem")
    playwright_api.expect(entries).to_have_count(1)
    entries.get_by_role("link", name=SCRIPT).click()
    page.locator("h1", has_text=SCRIPT).wait_for()
    assert page.locator(".rw-main script").count() == 0
    opened(page, "/graph?entity=12345")
    assert "no entity number 12345" in page.get_by_role("alert").inner_text()


def test_asking(page):
    opened(page, "/ask")
    page.get_by_role("link", name="parent_of(X, Y)", exact=True).wait_for()
    page.keyboard.press("/")
    page.keyboard.type("parent_of(al, X)")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ask?q=*")
    page.get_by_text("0 known and 1 inferred answers").wait_for()
    page.get_by_role("button", name="why").first.click()
    tree = page.locator(".rw-tree").first
    tree.wait_for()
    assert "spouse_of(al, ann)" in tree.inner_text() and "parent_of(ann, bob)" in tree.inner_text()
    opened(page, "/ask?q=parent_of(cid, ann)")
    page.get_by_text("does not follow").wait_for()
    opened(page, "/ask?q=parent_of(bob, X)")
    assert IMAGE in page.locator("table").inner_text()
    opened(page, f"/ask?q={urllib.parse.quote('parent_of(X, <script>')}")
    assert "column" not in page.get_by_role("alert").inner_text()
    assert page.get_by_role("alert").is_visible()


def test_the_report(page):
    opened(page, "/injection")
    text = page.locator(".rw-main").inner_text()
    assert SCRIPT in text and "0.875" in text and "+1.50" in text and "label(t1) in {o}" in text
    assert "4,321" in text and "-3.25" in text and "12 ▲ true, 5 ▼ false" in text


def test_light_and_dark(browser, address):
    for scheme, light in (("light", True), ("dark", False)):
        context = browser.new_context(base_url=address, color_scheme=scheme)
        page = opened(context.new_page(), "/")

        def brightness(page=page):
            colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
            return sum(map(int, re.findall(r"\d+", colour)[:3]))

        assert (brightness() > 380) == light
        page.get_by_label("Light or dark").click()
        page.wait_for_function(f"document.body.classList.contains('body--dark') === {'true' if light else 'false'}")
        page.reload()
        page.wait_for_function(f"document.body.classList.contains('body--dark') === {'true' if light else 'false'}")
        context.close()


def test_a_token_where_others_can_reach_it(browser, folder):
    address, process = served(folder, "--host", "0.0.0.0")
    try:
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(address)
        assert caught.value.code == 401
        port = address.rpartition(":")[2]
        token = re.search(r"\?token=(\S+)", (folder / f"{port}.log").read_text())
        assert token is not None
        context = browser.new_context(base_url=address)
        page = opened(context.new_page(), f"/?token={token[1]}")
        assert "token" not in page.url
        playwright_api.expect(page.locator("tbody tr")).to_have_count(3)  # the socket carries the cookie too
        context.close()
    finally:
        process.terminate()
        process.wait(timeout=60)
