"""A report in a real browser, opened from the disk: no errors, nothing from the network, and text stays text."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from recipe.spiral.lab.report.__main__ import main
from recipe.spiral.lab.report.run_report import RunReport
from recipe.spiral.processes.launch import only_one
from recipe.spiral.storage.metrics_file import MetricsFile
from recipe.spiral.storage.record_folder import RecordFolder
from tests.made import record, turn
from tests.made_runs import write_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.e2e

#: What a model may write to break out of a page, or to look like something else.
HOSTILE = (
    "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'><b>bold</b>"
    "\x1b[31mred\x1b[0m \u202efdp.exe\u202c \u0000 \u2028 {{x}} ${y} ]]> -->"
)
PAGES = ("index.html", "games.html", "pool.html", "evaluation.html", "metrics.html", "game.html#train/1/0/0")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    opponents = ("self", "step_000000", "self", "<img src=x onerror=alert(1)>")
    return write_run(tmp_path_factory.mktemp("made") / "run", steps=5, per_step=24, opponents=opponents)


@pytest.fixture(scope="module")
def report(run: Path) -> Path:
    RunReport(run, run / "report").renew()
    return run / "report"


def show(page: Page, report: Path, address: str) -> None:
    page.goto(f"file://{report}/{address}")
    page.wait_for_selector("main h1")


def wait_until(page: Page, condition: str) -> None:
    """As ``page.wait_for_function``, which the pages' own policy against foreign scripts refuses."""
    end = time.monotonic() + 30
    while not page.evaluate(condition):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(50)


def scroll_through(page: Page) -> None:
    """To each chart that is not drawn yet, and back: a chart is drawn when it is in sight."""
    undrawn = "[...document.querySelectorAll('.plot')].find(plot => !plot.dataset.drawn)"
    wait_until(page, f"(plot => {{ plot?.scrollIntoView(); return !plot; }})({undrawn})")
    page.evaluate("scrollTo(0, 0)")


@pytest.mark.parametrize("address", PAGES)
def test_a_page_opens_without_an_error(page: Page, report: Path, address: str) -> None:
    show(page, report, address)
    scroll_through(page)
    assert page.locator("main").inner_text().strip()
    assert "null" not in page.locator("main").inner_text() and "undefined" not in page.locator("main").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_phone_in_both_schemes(browser: Browser, report: Path, scheme: str) -> None:
    context = browser.new_context(viewport={"width": 375, "height": 700}, color_scheme=scheme, has_touch=True)  # type: ignore[arg-type]
    page, errors = context.new_page(), list[str]()
    page.on("pageerror", lambda error: errors.append(str(error)))
    for address in PAGES:
        show(page, report, address)
        assert page.evaluate("document.documentElement.scrollWidth") <= 375, address
        ends = page.evaluate("[...document.querySelectorAll('nav a')].map(link => link.getBoundingClientRect().right)")
        assert len(ends) == 5 and max(ends) <= 375
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    context.close()
    assert not errors
    assert (int(background.split("(")[1].split(",")[0]) < 128) == (scheme == "dark")


def test_filters_filter(page: Page, report: Path) -> None:
    show(page, report, "games.html")
    page.wait_for_selector("tbody tr")
    page.select_option("select[name=split]", "train")
    page.select_option("select[name=game]", "TicTacToe")
    page.select_option("select[name=opponent]", "step_000000")
    page.select_option("select[name=outcome]", "won")
    page.fill("input[name=from]", "3")
    page.locator("input[name=from]").dispatch_event("change")
    # until then the newest games are shown, whose steps are above 3 as well
    fits = "([step, , outcome, opponent, role]) => step >= 3 && opponent.includes('step_0') && outcome == `${role} won`"
    wait_until(page, f"[...document.querySelectorAll('tbody tr')].map(row => row.innerText.split('\\t')).every({fits})")
    rows = [
        text.split("\t")
        for text in page.evaluate("[...document.querySelectorAll('tbody tr')].map(row => row.innerText)")
    ]
    assert rows
    for step, game, outcome, opponent, role, *_ in rows:
        assert int(step) >= 3 and (game, opponent.strip()) == ("TicTacToe", "step_000000")
        assert outcome == f"{role} won"
    assert page.locator("[role=status].note").inner_text() == f"{len(rows)} games"
    page.reload()  # the address has the filters
    page.wait_for_selector("tbody tr")
    assert page.locator("tbody tr").count() == len(rows)


def test_older_games_come_when_asked_for(page: Page, report: Path) -> None:
    show(page, report, "games.html")
    page.wait_for_selector("tbody tr")
    first = page.locator("tbody tr").count()
    page.click("text=older games")
    wait_until(page, f"document.querySelectorAll('tbody tr').length > {first}")


def test_a_replay_goes_forwards_and_back_by_buttons_and_keys(page: Page, report: Path) -> None:
    show(page, report, "games.html#split=train&game=TicTacToe&invalid=none&outcome=0")
    page.click("tbody tr a")
    page.wait_for_selector(".board")
    marks = "[...document.querySelectorAll('.board td')].filter(cell => 'XO'.includes(cell.innerText)).length"
    turns = page.locator("ol.turns li").count()
    assert page.evaluate(marks) == 1, "after the first turn"
    page.click("[data-do=forward]")
    assert page.evaluate(marks) == 2 and page.locator(".controls output").inner_text() == f"turn 2 of {turns}"
    page.keyboard.press("ArrowRight")
    assert page.evaluate(marks) == 3
    page.keyboard.press("ArrowLeft")
    page.click("[data-do=back]")
    assert page.evaluate(marks) == 1
    page.keyboard.press("End")
    assert page.evaluate(marks) == turns and "The end: player 0 won" in page.locator("main").inner_text()
    assert page.locator(".text mark").first.inner_text().startswith("\\boxed{[")
    assert page.locator("dt", has_text="log-probability").count() == 1
    page.keyboard.press("Home")
    assert page.evaluate(marks) == 0
    before = page.locator("p.soft").first.inner_text()
    page.keyboard.press("n")
    wait_until(page, f"document.querySelector('p.soft').innerText !== {before!r}")
    page.keyboard.press("p")
    wait_until(page, f"document.querySelector('p.soft').innerText === {before!r}")


def test_the_next_game_is_the_next_that_fits(page: Page, report: Path) -> None:
    """Also where that is one of another step, and back again."""
    show(
        page, report, f"games.html#split=train&game=KuhnPoker&roles=1&opponent={quote('<img src=x onerror=alert(1)>')}"
    )
    page.wait_for_selector("tbody tr")
    listed = page.evaluate("[...document.querySelectorAll('tbody tr a')].map(link => link.hash)")
    assert len(listed) > 5 and len({address.split("/")[1] for address in listed}) == 5
    page.locator("tbody tr a").first.click()
    page.wait_for_selector(".replay")
    at = "location.hash.split('/').slice(0, 4).join('/')"
    for address in listed[1:]:
        page.evaluate("document.querySelector('.replay').id = 'before'")
        page.click("[data-do='next game']")
        wait_until(page, f"{at} === '{address}' && !document.querySelector('#before')")
        assert page.locator("h1").inner_text() == "KuhnPoker"
    assert page.locator("[data-do='next game']").get_attribute("aria-disabled") == "true"
    page.click("[data-do='previous game']")
    wait_until(page, f"{at} === '{listed[-2]}'")
    page.click("text=Games that fit the filters")
    page.wait_for_selector("tbody tr")
    assert page.evaluate("[...document.querySelectorAll('tbody tr a')].map(link => link.hash)") == listed


def test_the_cards_of_kuhn_poker_are_drawn_in_replays(page: Page, report: Path) -> None:
    show(page, report, "games.html#split=train&game=KuhnPoker&invalid=none")
    page.locator("tbody tr a").first.click()
    page.wait_for_selector(".kuhn")
    ranks = page.locator(".card-face").all_inner_texts()
    assert len(ranks) == 2 and {*ranks} < {"J", "Q", "K"}
    assert "pot" in page.locator(".pot").inner_text() and page.locator(".said .new").count() == 1
    page.keyboard.press("End")
    assert "won" in page.locator(".pot").inner_text()


def test_all_charts_are_on_paper(page: Page, report: Path) -> None:
    """Also those that have never been in sight."""
    show(page, report, "index.html")
    wait_until(page, "window.Plotly")
    drawn = "[...document.querySelectorAll('.plot')].filter(plot => plot.querySelector('svg')).length"
    plots = page.locator(".plot").count()
    assert page.evaluate(drawn) < plots
    page.evaluate("""addEventListener("afterprint", () => { window.printed = true; });
        addEventListener("beforeprint", () => {
            const plots = [...document.querySelectorAll(".plot")];
            window.onPaper = plots.map((plot) => plot.querySelector("svg.main-svg")?.clientWidth ?? 0);
        });""")
    page.pdf(format="A4")
    wait_until(page, "window.printed")
    on_paper = page.evaluate("window.onPaper")
    assert len(on_paper) == plots and all(200 < width < 680 for width in on_paper)
    assert not page.evaluate("document.body.classList.contains('printing')")


def test_all_metrics_are_in_groups_smoothed_and_over_hours(page: Page, tmp_path: Path) -> None:
    run, clock = tmp_path / "run", iter(range(0, 36000, 3600))
    file = MetricsFile(run, clock=lambda: float(next(clock)))
    for step, value in enumerate((0.0, 4.0, 0.0, 4.0), start=1):
        few = {"actor/loss": value, "turns/entropy": 1.0, "turns/invalid": 0.0}
        file.log(few | {f"games/{game}/m{n}": 1.0 for game in ("A", "B") for n in range(20)}, step)
    (run / "config.yaml").write_text("trainer: {}\n")
    RunReport(run, tmp_path / "report").renew()
    show(page, tmp_path / "report", "metrics.html")
    groups = page.locator("nav.groups button").all_inner_texts()
    assert groups == ["actor 1", "games/A 20", "games/B 20", "turns 2"]
    assert page.locator("figure").count() == 43
    page.click("nav.groups button:has-text('turns')")
    wait_until(page, "document.querySelector('details:last-child').getBoundingClientRect().top < innerHeight")
    page.fill("#search", "loss")
    wait_until(page, "document.querySelector('.plot')?.data")
    assert page.locator("figure h3").all_inner_texts() == ["actor/loss"]
    page.evaluate("smoothing.value = 0.5; smoothing.dispatchEvent(new Event('input'))")
    wait_until(page, "document.querySelector('.plot').data.length === 2")
    raw, smooth = page.evaluate("document.querySelector('.plot').data.map(trace => [...trace.y])")
    assert raw == [0, 4, 0, 4]
    assert smooth == pytest.approx([0, 8 / 3, 8 / 7, 8 / 3]), (
        "weights 1; 1/3, 2/3; 1/7, 2/7, 4/7; 1/15, 2/15, 4/15, 8/15"
    )
    page.select_option("#axis", "hours")
    wait_until(page, "document.querySelector('.plot').layout.xaxis.title.text === 'hours'")
    assert page.evaluate("[...document.querySelector('.plot').data[0].x]") == [0, 1, 2, 3]


def test_everything_is_reached_by_the_keyboard(page: Page, report: Path) -> None:
    show(page, report, "games.html")
    page.wait_for_selector("tbody tr")
    seen = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.tagName + (document.activeElement.name ?? '')"))
    assert {"A", "SELECTgame", "INPUTfrom", "SELECTinvalid"} <= seen
    page.locator("tbody tr a").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".replay")


def test_hostile_text_is_shown_and_does_nothing(page: Page, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", steps=1, per_step=4, words=lambda step: HOSTILE)
    RunReport(run, tmp_path / "report").renew()
    show(page, tmp_path / "report", "game.html#train/1/0/0")
    page.wait_for_selector(".right .text")
    shown = page.locator(".right .text").first.inner_text()
    assert "</script><script>window.hacked = 1</script><img src=x onerror" in shown and "<b>bold</b>" in shown
    assert "U+001B[31mredU+001B[0m" in shown and "U+202Efdp.exeU+202C" in shown
    assert "U+0000" in shown and "U+2028" in shown
    assert page.evaluate("window.hacked") is None
    assert page.locator(".right script, .right img, .right b:not(dd b)").count() == 0


def test_a_name_is_no_html_in_charts_either(page: Page, report: Path) -> None:
    show(page, report, "pool.html")
    scroll_through(page)
    assert "<img src=x" in page.locator("main").inner_text()
    assert page.locator("main img").count() == 0


def test_a_line_of_a_megabyte_is_shown_when_asked_for(page: Page, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", steps=1, per_step=2)
    long = record(0, turns=[turn(0, 0, response="x" * 1_000_000), turn(1, 0)])
    RecordFolder(run / "games").write("train", 1, [long])
    RunReport(run, tmp_path / "report").renew()
    show(page, tmp_path / "report", "game.html#train/1/0/0")
    page.wait_for_selector(".right .text")
    assert len(page.locator(".right .text").first.text_content() or "") == 20_000
    page.click("text=/show all 1,000,0.* characters/")
    assert len(page.locator(".right .text").first.text_content() or "") == 1_000_000
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_a_run_that_is_watched_shows_its_new_step(page: Page, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", steps=2, per_step=4, total=3)
    with only_one(run):
        RunReport(run, run / "report").renew()
    # As long as somebody trains there; another process would hold the lock.
    data = run / "report" / "data" / "version.js"
    data.write_text(data.read_text().replace("false", "true"))
    show(page, run / "report", "index.html")
    assert "step 2 of 3" in page.locator("header").inner_text()
    write_run(run, steps=3, first=3, per_step=4)
    watcher = threading.Thread(target=main, args=([str(run), "--watch", "--every", "0.2"],))
    watcher.start()
    wait_until(page, "document.querySelector('header').innerText.includes('step 3 of 3')")
    watcher.join()


def test_runs_side_by_side_and_a_sweep(page: Page, tmp_path: Path) -> None:
    sweep = tmp_path / "sweep"
    names = [f"lr={rate},seed={seed}" for rate in ("1", "2") for seed in (0, 1)]
    for name in names:
        write_run(sweep / name, steps=4, per_step=4)
    rows = ["folder,lr,seed,status,steps,seconds,message"]
    rows += [f'"{name}",{name[3]},{name[-1]},ok,4,1.0,' for name in names]
    (sweep / "results.csv").write_text("\n".join(rows) + "\n")
    assert main([str(sweep)]) == 0
    show(page, sweep / "report", "index.html")
    scroll_through(page)
    text = page.locator("main").inner_text()
    assert "A sweep" in text and "lr=1" in text and "95% interval" in text
    page.select_option("#axis", "hours")
    page.click("#each")
    assert page.is_checked("#each"), "over hours there is no mean"
    page.fill("#search", "entropy")
    wait_until(
        page,
        "(titles => titles.length && titles.every(title => title.innerText.includes('entropy')))"
        "([...document.querySelectorAll('figure h3')])",
    )
    assert main([*(str(sweep / name) for name in names[::2]), "--compare", "--out", str(tmp_path / "two")]) == 0
    show(page, tmp_path / "two", "index.html")
    scroll_through(page)
    text = page.locator("main").inner_text()
    assert "Runs side by side" in text and "The runs have the same settings." in text
    for rate, name in enumerate(names[::2]):
        with (sweep / name / "config.yaml").open("a") as config:
            config.write(f"algorithm: {{rae: {{decay: 0.{rate + 5}}}}}\n")
    assert main([*(str(sweep / name) for name in names[::2]), "--compare", "--out", str(tmp_path / "two")]) == 0
    show(page, tmp_path / "two", "index.html")
    [row] = page.locator("details.settings tbody tr").all_inner_texts()
    assert row.split("\t") == ["algorithm.rae.decay", "0.5", "0.6"]


def test_the_policy_of_kuhn_poker_is_drawn(page: Page, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", steps=2, per_step=4)
    evaluation = run / "evaluation"
    evaluation.mkdir()
    (evaluation / "results.json").write_text('{"results": [], "ratings": [], "notes": ["a <b>note</b>"]}')
    places = [
        (0, "", "check bet"),
        (1, "[check]", "check bet"),
        (1, "[bet]", "call fold"),
        (0, "[check] [bet]", "call fold"),
    ]
    rows = [
        f"policy,KuhnPoker,scores,{player},{card},{history},[{action}],{share},{share},{share},"
        for player, history, actions in places
        for card in "JQK"
        for action, share in zip(actions.split(), (0.25, 0.75), strict=True)
    ]
    head = "policy,game,read_by,player,private,history,action,probability,low,high,samples"
    (evaluation / "actions.csv").write_text("\n".join([head, *rows]) + "\n")
    RunReport(run, tmp_path / "report").renew()
    show(page, tmp_path / "report", "evaluation.html")
    assert (
        "player" not in (page.locator("svg.tree").get_attribute("aria-label") or "")
        and page.locator("svg.tree rect").count() > 12
    )
    page.click("text=As a table")
    assert page.locator("details table tbody tr").count() == 12
    assert "25.0%" in page.locator("details table").inner_text()


def test_the_policy_of_kuhn_poker_goes_along_with_the_validations(page: Page, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", steps=2, per_step=4)
    places = {"J": "check bet", "J_check_bet": "call fold", "Q": "check bet", "Q_check_bet": "call fold"}
    for step in (1, 2):
        table = {f"p0_{place}/{action}": step / 4 for place, actions in places.items() for action in actions.split()}
        exact = {f"val-aux/KuhnPoker/policy/{name}": share for name, share in table.items()}
        MetricsFile(run).log(exact | {"val-core/KuhnPoker/nash_conv": 1 / step}, step)
    RunReport(run, tmp_path / "report").renew()
    show(page, tmp_path / "report", "index.html")
    assert "NashConv, KuhnPoker\n0.50" in page.locator("dl.tiles").inner_text()
    show(page, tmp_path / "report", "evaluation.html")
    page.click("text=As a table")
    assert "step 2" in page.locator("main").inner_text() and "50.0%" in page.locator("details table").inner_text()
    page.locator("#policy-step").focus()
    page.keyboard.press("ArrowLeft")
    assert "The policy at step 1" in page.locator("main").inner_text()


def test_pairs_are_drawn_by_game_and_where_there_are_none_there_is_no_panel(page: Page, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", steps=2, per_step=4)
    RunReport(run, tmp_path / "report").renew()
    show(page, tmp_path / "report", "index.html")
    assert "Pairs" not in page.locator("main").inner_text()
    for step in (1, 2):
        pairs = {"pairs/count": 5.0, "pairs/sums/count": 5.0, "pairs/sums/ties": 2.0, "pairs/sums/alone": 0.0}
        pairs |= {"pairs/TicTacToe/count": 0.0, "pairs/TicTacToe/ties": 3.0, "pairs/TicTacToe/alone": 9.0}
        pairs |= {f"pairs/sums/{name}": step / 4 for name in ("accuracy", "margin", "chosen_reward")}
        pairs |= {"pairs/sums/rejected_reward": -0.5, "actor/dpo_accuracy": 0.75, "actor/dpo_margin": 0.1}
        MetricsFile(run).log(pairs, step)
    RunReport(run, tmp_path / "report").renew()
    show(page, tmp_path / "report", "index.html")
    scroll_through(page)
    titles = page.locator("figure h3").all_inner_texts()
    games = {"Prompts that gave pairs, sums", "Prompts that gave pairs, TicTacToe", "Rewards of responses, sums"}
    assert games | {"Pairs the right way round", "Margin"} <= set(titles)
    assert "Rewards of responses, TicTacToe" not in titles
    summary = page.locator(".plot[aria-label^='Pairs the right way round']").get_attribute("aria-label")
    assert summary is not None and "sums" in summary and "in the update" in summary and "50" in summary


def test_the_first_page_of_many_games_is_there_at_once(page: Page, tmp_path: Path) -> None:
    """What it loads does not grow with the games: counted in bytes, as time depends on the machine."""
    run = write_run(tmp_path / "run", steps=30, per_step=8)
    RunReport(run, tmp_path / "report").renew()
    loaded: list[str] = []
    page.on("request", lambda request: loaded.append(request.url))
    show(page, tmp_path / "report", "index.html")
    assert not [url for url in loaded if "/games/" in url or "/index/" in url]
    data = [tmp_path / "report" / "data" / url.split("/data/")[1].split("?")[0] for url in loaded if "/data/" in url]
    assert 3 <= len(data) <= 4 and sum(file.stat().st_size for file in data) < 200_000
