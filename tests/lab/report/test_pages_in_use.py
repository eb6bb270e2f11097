"""Pages in somebody's hands, in a real browser: the focus stays, nothing is lost by haste, and long names have room."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recipe.spiral.lab.report.comparison import Comparison
from recipe.spiral.lab.report.run_report import RunReport
from recipe.spiral.storage.metrics_file import MetricsFile
from recipe.spiral.storage.record_folder import RecordFolder
from tests.lab.report.test_pages import PAGES, scroll_through, show, wait_until
from tests.made_runs import write_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.e2e
#: Whether nothing is left of what is scrolled on a screen.
WHOLE = """[...document.querySelectorAll(".scroll, .text, ol.turns")]
    .every((box) => box.scrollWidth <= box.clientWidth && box.scrollHeight <= box.clientHeight)"""


def test_older_games_asked_for_twice_lose_no_steps(page: Page, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", steps=150, per_step=1, every=1000)
    RunReport(run, tmp_path / "report").renew()
    show(page, tmp_path / "report", "games.html#split=train")
    page.wait_for_selector("tbody tr")
    page.evaluate("[1, 2].forEach(() => document.querySelector('#older').click())")
    wait_until(page, "document.querySelectorAll('tbody tr').length === 100")
    steps = page.evaluate("[...document.querySelectorAll('tbody tr a')].map(link => Number(link.innerText))")
    assert steps == list(range(150, 50, -1))


def test_one_file_is_read_once_for_all_who_want_it(page: Page, tmp_path: Path) -> None:
    RunReport(write_run(tmp_path / "run", steps=1, per_step=2), tmp_path / "report").renew()
    show(page, tmp_path / "report", "metrics.html")
    both = page.evaluate("async () => await Promise.all([SPIRAL.load('run'), SPIRAL.load('run')])")
    assert [run["name"] for run in both] == ["run", "run"]


def test_the_focus_stays_in_a_replay(page: Page, tmp_path: Path) -> None:
    RunReport(write_run(tmp_path / "run", steps=1, per_step=4), tmp_path / "report").renew()
    show(page, tmp_path / "report", "game.html#train/1/0/0/0")
    purpose = "document.activeElement.dataset.do"
    page.evaluate("window.spoken = document.querySelector('.controls output')")
    page.locator("[data-do=forward]").focus()
    turns = page.locator("ol.turns li").count()
    for at in range(1, turns + 2):  # once more than there are turns
        page.keyboard.press("Enter")
        assert (
            page.evaluate("window.spoken.isConnected && window.spoken.innerText") == f"turn {min(at, turns)} of {turns}"
        )
        assert page.evaluate(purpose) == "forward"
    assert page.locator("[data-do=forward]").get_attribute("aria-disabled") == "true"
    page.locator("ol.turns button").first.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.getAttribute('aria-current')") == "step"
    page.locator("[data-do='next game']").focus()
    page.keyboard.press("Enter")
    wait_until(page, "document.querySelector('p.soft').innerText.endsWith('Key train-7-1-1-0')")
    assert page.evaluate(purpose) == "next game"


def one(run: Path) -> Callable[[], object]:
    return RunReport(run, run / "report").renew


def several(run: Path) -> Callable[[], object]:
    return Comparison([run], run / "report").renew


@pytest.mark.parametrize(
    ("report", "address", "place", "typed", "more", "whole"),
    [
        (one, "metrics.html", "#search", "games/", "x", "gamesx/"),
        (several, "index.html", "#search", "games/", "x", "gamesx/"),
        (one, "games.html", "input[name=to]", "1", "2", "12"),
    ],
)
def test_whoever_types_is_not_disturbed_by_a_new_step(
    report: Callable[[Path], Callable[[], object]],
    address: str,
    place: str,
    typed: str,
    more: str,
    whole: str,
    page: Page,
    tmp_path: Path,
) -> None:
    run = write_run(tmp_path / "run", steps=2, per_step=2)
    renew = report(run)
    renew()
    version = run / "report" / "data" / "version.js"
    version.write_text(version.read_text().replace("false", "true"))  # as while somebody trains there
    show(page, run / "report", address)
    page.locator(place).focus()
    page.keyboard.type(typed)
    if place == "#search":
        page.keyboard.press("ArrowLeft")
    page.evaluate("document.querySelector('header strong').id = 'before'")
    write_run(run, steps=3, first=3, per_step=2)
    renew()
    wait_until(page, "!document.querySelector('#before')")
    page.wait_for_timeout(300)
    page.keyboard.type(more)
    assert page.locator(place).input_value() == whole
    if place != "#search":
        page.keyboard.press("Tab")
        wait_until(page, "location.hash.includes('to=12')")


@pytest.mark.parametrize("width", [360, 1280])
def test_long_names_leave_the_plots_their_room(browser: Browser, width: int, tmp_path: Path) -> None:
    sweep, key = tmp_path / "sweep", "actor_rollout_ref.actor.a_setting_with_a_very_long_name_indeed"
    rows = [f"folder,{key},seed,status"]
    for value in (1, 2):
        for seed in (0, 1):
            MetricsFile(sweep / f"{value}_{seed}").log({"turns/entropy": value + seed}, 1)
            rows.append(f"{value}_{seed},{value},{seed},ok")
    (sweep / "results.csv").write_text("\n".join(rows) + "\n")
    Comparison([sweep], sweep / "report").renew()
    context = browser.new_context(viewport={"width": width, "height": 800})
    page = context.new_page()
    show(page, sweep / "report", "index.html")
    scroll_through(page)
    [margin, plot, names, texts] = page.evaluate("""(() => {
        const plot = document.querySelector(".plot");
        const texts = plot.layout.annotations.map(one => one.text), names = plot.data.map(trace => trace.name);
        return [plot._fullLayout.margin.r, plot.clientWidth, names, texts];
    })()""")
    page.set_viewport_size({"width": 720, "height": 800})
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(WHOLE), "on paper"
    context.close()
    assert margin <= 0.36 * plot
    assert {f"{key}=1", f"{key}=2"} <= set(names), "whole in the hover"
    assert len(set(texts)) == 2 and all("…" in text and text[-2:] in ("=1", "=2") for text in texts)


def test_a_long_name_of_a_run_fits_a_small_phone(browser: Browser, tmp_path: Path) -> None:
    RunReport(write_run(tmp_path / "_".join(["long"] * 12), steps=2, per_step=4), tmp_path / "report").renew()
    context = browser.new_context(viewport={"width": 360, "height": 700})
    page = context.new_page()
    for address in PAGES:
        show(page, tmp_path / "report", address)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, address
    context.close()


def test_the_moves_before_a_game_are_shown_and_nothing_in_them_is_invisible(page: Page, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", steps=1, per_step=2)
    game = next(RecordFolder(run / "games").read_step("train", 1))
    past = ["[4]", "tag\U000e0041 \u034f\u115f\u3164 \u2764\ufe0f"]
    branch = replace(game, key=game.key.next_retry(), past=past)
    RecordFolder(run / "games").write("train", 1, [game, branch])
    RunReport(run, tmp_path / "report").renew()
    show(page, tmp_path / "report", "game.html#train/1/0/0")
    assert "before it" not in page.locator("main").inner_text()
    show(page, tmp_path / "report", "game.html#train/1/0/1")
    wait_until(page, "document.querySelector('main').innerText.includes('The moves before it')")
    text = page.locator("main").inner_text()
    assert "these 2 actions of both players" in text
    assert "[4]\ntagU+E0041 U+034FU+115FU+3164 \u2764\ufe0f" in text


@pytest.mark.parametrize("address", ["games.html", "game.html#train/1/0/0", "evaluation.html", "index.html"])
def test_on_paper_nothing_is_cut_and_nothing_is_to_click(page: Page, tmp_path: Path, address: str) -> None:
    """Also on pages without charts."""
    RunReport(write_run(tmp_path / "run", steps=1, per_step=24), tmp_path / "report").renew()
    page.set_viewport_size({"width": 720, "height": 1000})  # A4 between its margins
    show(page, tmp_path / "report", address)
    page.wait_for_selector("main .card")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert not page.locator("nav:visible, form:visible, input:visible, button:visible:not(li > button)").count()
    assert page.locator("ol.turns li:visible").count() == page.locator("ol.turns li").count()
    assert page.evaluate(WHOLE)
    if address == "games.html":
        lines = """(cell) => {
            const range = document.createRange();
            range.selectNodeContents(cell);
            return range.getClientRects().length;
        }"""
        word = page.locator("td", has_text=re.compile("^TicTacToe$")).first
        assert word.evaluate(lines) == 1, "no word is broken"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("nav").first.is_visible()


def test_a_long_table_begins_on_the_page_of_its_heading(page: Page, tmp_path: Path) -> None:
    RunReport(write_run(tmp_path / "run", steps=1, per_step=50), tmp_path / "report").renew()
    show(page, tmp_path / "report", "games.html")
    page.wait_for_selector("tbody tr")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    breaks = page.evaluate("(name) => getComputedStyle(document.querySelector(name)).breakInside", "main .card table")
    assert page.locator("tbody tr").first.evaluate("(row) => getComputedStyle(row).breakInside") == "avoid"
    assert breaks == page.locator("div.card").last.evaluate("(card) => getComputedStyle(card).breakInside") == "auto"


def test_controls_and_figures_of_a_row_are_at_one_height(browser: Browser, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", steps=2, per_step=8, opponents=("self", "random"))
    MetricsFile(run).log({"val-core/KuhnPoker/nash_conv": 0.5}, 2)
    RunReport(run, tmp_path / "report").renew()
    context = browser.new_context(viewport={"width": 390, "height": 800})
    page = context.new_page()
    tops = "(name) => [...document.querySelectorAll(name)].map((one) => Math.round(one.getBoundingClientRect().top))"
    show(page, tmp_path / "report", "games.html")
    assert len({*page.evaluate(tops, "[name=from], [name=to]")}) == 1, "a range's ends are side by side"
    show(page, tmp_path / "report", "index.html")
    assert len({*page.evaluate(tops, "label[for=smoothing], label[for=axis]")}) == 1
    assert len({*page.evaluate(tops, "label[for=smoothing] > span, label[for=axis]")}) == 1
    figures = page.evaluate(tops, ".tile dd")
    assert figures[::2][: len(figures) // 2] == figures[1::2], "two in a row"
    context.close()


def test_a_small_figure_has_no_more_digits_than_it_needs(page: Page, tmp_path: Path) -> None:
    RunReport(write_run(tmp_path / "run", steps=1, per_step=2), tmp_path / "report").renew()
    show(page, tmp_path / "report", "index.html")
    shown = page.evaluate("[5e-5, -0.00012574, 0, 0.25, 0.12345, 12345.6, null].map((value) => number(value, 4))")
    assert shown == ["0.00005", "-0.0001257", "0", "0.2500", "0.1235", "12,346", "\u2013"]


def test_the_usual_metrics_begin_with_the_exact_ones(page: Page, tmp_path: Path) -> None:
    for name in ("a", "b"):
        usual = {"actor/grad_norm": 1.0, "games/TicTacToe/p0/win": 0.5, "turns/entropy": 1.0}
        exact = {"val-core/random/TicTacToe/p0/win": 0.5, "val-core/KuhnPoker/nash_conv": 0.5}
        MetricsFile(tmp_path / name).log(usual | exact, 1)
    Comparison([tmp_path / "a", tmp_path / "b"], tmp_path / "report").renew()
    show(page, tmp_path / "report", "index.html")
    scroll_through(page)
    assert page.locator("figure h3").all_inner_texts() == [
        "val-core/KuhnPoker/nash_conv",
        "val-core/random/TicTacToe/p0/win",
        "turns/entropy",
        "actor/grad_norm",
        "games/TicTacToe/p0/win",
    ]


def test_the_figures_under_the_pointer_say_of_which_step_or_hour_they_are(page: Page, tmp_path: Path) -> None:
    clock = iter((0.0, 10.0, 25.0))
    file = MetricsFile(tmp_path / "run", clock=lambda: next(clock))
    for step in (1, 2, 3):
        file.log({"turns/entropy": step / 7}, step)
    (tmp_path / "run" / "config.yaml").write_text("trainer: {}\n")
    RunReport(tmp_path / "run", tmp_path / "report").renew()
    show(page, tmp_path / "report", "metrics.html")
    for axis, said in (("step", "step 3"), ("hours", "0.00694 hours")):
        page.select_option("#axis", axis)
        wait_until(page, "document.querySelector('.plot').dataset.drawn")
        page.hover(".plot .point >> nth=2", force=True)
        wait_until(page, "document.querySelectorAll('.hoverlayer text').length === 2")
        assert page.locator(".hoverlayer text").all_text_contents()[0] == said
        page.mouse.move(0, 0)
        wait_until(page, "!document.querySelector('.hoverlayer text')")
