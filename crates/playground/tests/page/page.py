"""Drives the page in Chromium, as a visitor does. Arguments: address of the page, engine, path of Chromium, and optionally the file
for a picture. Prints a line of JSON for each lesson: what the page shows of both sides."""

import json
import sys

from playwright.sync_api import expect, sync_playwright

RUN_MS = 120_000
# A busy machine takes seconds to show a page.
expect.set_options(timeout=30_000)
ADDRESS, ENGINE, CHROMIUM = sys.argv[1:4]
A_BUG = "repeated-debit-debits-again"
PICTURE = sys.argv[4] if len(sys.argv) > 4 else None


def wait_for_result(page):
    expect(page.locator("#result")).to_have_attribute("data-state", "done", timeout=RUN_MS)


def shown(page):
    """The figures of both sides, as a visitor reads them."""
    sides = {}
    for side in ("with-keys", "without-keys"):
        part = page.locator(f"#{side}")
        sides[side] = {
            "charged": part.locator(".charged").inner_text(),
            "left": part.locator(".left").inner_text(),
            "finding": part.locator(".finding").inner_text(),
            "entries": part.locator("tbody td:last-child").all_inner_texts(),
            "steps": part.locator(".steps li").count(),
            "faults": part.locator(".steps li.fault-step").count(),
        }
    return sides


def open_page(browser, link=""):
    # Without motion the simulation shows its result at once.
    page = browser.new_page(viewport={"width": 1200, "height": 900}, reduced_motion="reduce")
    page.on("pageerror", lambda error: sys.exit(f"the page failed: {error}"))
    page.goto(ADDRESS + link)
    expect(page.locator("body")).to_have_attribute("data-state", "ready")
    return page


def lessons(browser):
    page = open_page(browser)
    if ENGINE == "real":
        page.get_by_label("Real processes").check()
    names = [button.get_attribute("data-lesson") for button in page.locator("#lessons button").all()]
    for name in names:
        page.locator(f"#lessons button[data-lesson={name}]").click()
        wait_for_result(page)
        link = page.locator("#link").get_attribute("href")
        print(json.dumps({"lesson": name, "link": link, **shown(page)}), flush=True)
        if PICTURE and name == "crash-after-accepted":
            take_picture(page)
    page.close()


def take_picture(page):
    """The schedule and the two accounts."""
    top, bottom = (page.locator(part).bounding_box() for part in ("#instants", "#result"))
    height = bottom["y"] + bottom["height"] + 16 - top["y"]
    clip = {"x": 0, "y": top["y"] + page.evaluate("window.scrollY"), "width": 1200, "height": height}
    page.screenshot(path=PICTURE, full_page=True, clip=clip)


def links(browser):
    """A link shows the same schedule and result again, and one with an unknown word says so."""
    page = open_page(browser, "#schedule=submit-answered:lose,retry:crash")
    wait_for_result(page)
    expect(page.locator("#instants .dropped")).to_have_count(2)
    print(json.dumps({"link": "read", **shown(page)}), flush=True)
    page.close()
    page = open_page(browser, f"#schedule=waiting:freeze&engine=simulation&profile=fednow&bug={A_BUG}")
    wait_for_result(page)
    expect(page.locator("#profile")).to_have_value("fednow")
    expect(page.locator("#with-keys .finding")).to_contain_text("from its claims account")
    expect(page.locator("#bug")).to_have_value(A_BUG)
    expect(page.locator("#bug-broken")).to_contain_text("does not hold")
    link = "#schedule=waiting%3Afreeze&engine=simulation&profile=fednow&bug="
    expect(page.locator("#link")).to_have_attribute("href", link + A_BUG)
    page.close()
    for unknown in ("schedule=submit-answered:explode", "schedule=&profile=fax", "schedule=&bug=fax"):
        page = open_page(browser, "#" + unknown)
        expect(page.locator("#message")).to_contain_text(unknown.split("=")[-1])
        page.close()


def real_link(browser):
    """A link with the real processes chooses them, and waits for the visitor: it kills nothing by itself."""
    page = open_page(browser, "#schedule=waiting:crash&engine=real")
    expect(page.get_by_label("Real processes")).to_be_checked()
    expect(page.locator("#instants .dropped")).to_have_count(1)
    expect(page.locator("#result")).to_have_attribute("data-state", "none")
    page.close()


def mouse_and_keys(browser):
    """A fault is dragged onto an instant; another one is chosen and placed by the keyboard; both are removed."""
    page = open_page(browser)
    page.locator(".fault[data-fault=freeze]").drag_to(page.locator(".instant[data-instant=order]"))
    expect(page.locator("#instants .dropped")).to_have_count(0)
    page.locator(".fault[data-fault=repeat]").drag_to(page.locator(".instant[data-instant=confirmation]"))
    expect(page.locator(".instant[data-instant=confirmation] .dropped")).to_contain_text("Twice")
    page.locator(".fault[data-fault=crash]").press("Enter")
    expect(page.locator(".instant.fits")).to_have_count(6)
    page.locator(".instant[data-instant=reserve]").press("Enter")
    expect(page.locator("#instants .dropped")).to_have_count(2)
    page.get_by_role("button", name="Run", exact=True).click()
    wait_for_result(page)
    print(json.dumps({"dropped": page.locator("#link").get_attribute("href"), **shown(page)}), flush=True)
    page.get_by_label("Remove Twice at Confirmation").click()
    expect(page.locator("#instants .dropped")).to_have_count(1)
    page.get_by_role("button", name="Remove the faults").click()
    expect(page.locator("#instants .dropped")).to_have_count(0)
    page.close()


def refusals(browser):
    """The page shows why a schedule is not accepted."""
    page = open_page(browser, "#schedule=retry:crash")
    expect(page.locator("#result")).to_have_attribute("data-state", "failed")
    expect(page.locator("#message")).to_contain_text("lose the submit or its answer as well")
    page.close()


def bugs(browser):
    page = open_page(browser)
    options = page.locator("#bug option").all()[1:]
    for option in options:
        page.locator("#bug").select_option(option.get_attribute("value"))
        expect(page.locator("#bug-played")).to_have_attribute("data-state", "done")
        expect(page.locator("#bug-broken")).to_contain_text("does not hold")
        assert page.locator("#bug-steps li").count() > 2
    print(json.dumps({"bugs": len(options)}), flush=True)
    page.close()


with sync_playwright() as playwright:
    # Chromium's own sandbox does not start for root.
    chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
    lessons(chromium)
    if ENGINE == "simulation":
        links(chromium)
        mouse_and_keys(chromium)
        refusals(chromium)
        bugs(chromium)
    else:
        real_link(chromium)
    chromium.close()
