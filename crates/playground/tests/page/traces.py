"""Drives the page of traces in Chromium, as a visitor does. Arguments: address of the playground, optionally "without" for one
that receives no traces, and the path of Chromium. Prints a line of JSON for each thing that the page shows."""

import json
import sys

from playwright.sync_api import expect, sync_playwright

# A busy machine takes seconds to show a page.
expect.set_options(timeout=30_000)

ADDRESS, CHROMIUM = sys.argv[1], sys.argv[-1]
RECEIVES = "without" not in sys.argv


def show(**line):
    print(json.dumps(line), flush=True)


def open_page(browser, link):
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.on("pageerror", lambda error: sys.exit(f"the page failed: {error}"))
    page.goto(f"{ADDRESS}traces{link}")
    return page


def without(browser):
    page = open_page(browser, "")
    expect(page.locator("body")).to_have_attribute("data-state", "failed")
    show(message=page.locator("#message").inner_text())


def traces(browser):
    page = browser.new_page()
    page.goto(ADDRESS)
    page.get_by_role("link", name="Traces of the payments").click()
    rows = page.locator("#traces tbody tr")
    expect(rows).to_have_count(1)
    page.get_by_label("Only traces of payments").uncheck()
    expect(rows).to_have_count(2)
    show(listed=[1, rows.count()])
    page.close()

    # A link to a payment shows its trace.
    page = open_page(browser, "#payment=pay_1")
    expect(page.locator("#trace")).to_have_attribute("data-state", "shown")
    show(linked=page.locator("#trace-id").inner_text())
    spans = page.locator("#spans li")
    show(spans=[span.locator(".name").evaluate("(name) => name.firstChild.textContent") for span in spans.all()])
    # Later spans lie further to the right.
    lefts = [span.locator(".bar").bounding_box()["x"] for span in spans.all()]
    assert lefts == sorted(lefts) and lefts[0] < lefts[2], lefts
    failed = page.locator("#spans li.failed")
    failed.click()
    expect(page.locator("#span-name")).to_contain_text("submit")
    reason = page.locator("#attributes tr", has_text="failed").locator("td:last-child").inner_text()
    show(failed=failed.count(), reason=reason)
    show(workflow=page.locator("#workflow").get_attribute("href"))
    # The keyboard chooses a span too, and the page keeps it while it reads anew.
    spans.nth(2).press("Enter")
    expect(page.locator("#attributes tr", has_text="attempt").locator("td:last-child")).to_have_text("2")
    expect(spans.nth(2)).to_have_attribute("aria-selected", "true")
    page.close()


with sync_playwright() as playwright:
    # Chromium's own sandbox does not start for root.
    chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
    (traces if RECEIVES else without)(chromium)
    chromium.close()
