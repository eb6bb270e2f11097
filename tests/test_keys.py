"""A key works, however it was given, and is in nothing that a command writes or prints."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).resolve().parents[1]
#: So that all can be looked for at once.
MARK = "MARKED9"
#: What holds a key in the environment, and in the ``.env`` of the working directory.
ENVIRONMENT = {
    **{name: f"{MARK}-{name}" for name in ("OPENAI_API_KEY", "MY_TOKEN", "HARMLESS", "ADDRESS", "OTHER_SECRET")},
}
DOTENV = f"FROM_FILE_KEY={MARK}-dotenv\n"
API = ",".join(
    [
        "kind: api, name: gpt, model: gpt, api_key_env: FROM_FILE_KEY, games: [KuhnPoker]",
        "extra_body: {api_key: ${oc.env:MY_TOKEN}"  # by a variable of such a name
        "  , token: ${oc.env:HARMLESS}"  # by a variable of any name, in such a field
        "  , user: 'Bearer ${oc.env:OPENAI_API_KEY}'"  # in any field, by a variable of such a name
        f"  , secret: ${{oc.env:NOT_SET,{MARK}-default}}"
        f"  , headers: [{{x-api-key: {MARK}-clear}}, {{Authorization: 'Bearer {MARK}+/=more'}}]"
        f'  , password: "{MARK}\'s quoted"'
        f'  , metadata: \'{{"access_token": "{MARK}-json"}}\''
        "  , credentials: {here: ${environment.GIVEN_API_KEY}}}",
    ]
)
GIVEN = [
    f"+environment.GIVEN_API_KEY={MARK}-environment",
    f"+environment.PROXY=http://me:{MARK}-password@proxy:80",
    f"+environment.PLACE='http://host/v1?api-key={MARK}-query&a=b'",
]


def run(folder: Path, *command: str) -> tuple[int, str]:
    (folder / ".env").write_text(DOTENV)
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    return done.returncode, done.stdout + done.stderr


def assert_no_key(folder: Path, printed: str, *written: str) -> None:
    """Also that what should be written is there, and nobody else can read what may hold settings."""
    assert MARK not in printed
    files = [file for file in folder.rglob("*") if file.is_file() and file.name != ".env"]
    assert not [file for file in files if MARK.encode() in file.read_bytes() or MARK in str(file)]
    for pattern in written:
        found = list(folder.glob(pattern))
        assert found and all(file.stat().st_mode & 0o777 == 0o600 for file in found), pattern


def test_an_evaluation(tmp_path: Path) -> None:
    sizes = ["games=[TicTacToe]", "games_per_role=1", "exploitability.games=[]", "optimality.games=[]"]
    given = ["policies=[random]", f"opponents=[perfect,{{{API}}}]", "eval_dir=e", "match_ups=[cross]"]
    status, printed = run(tmp_path, "-m", "recipe.spiral.main_eval", *given, *sizes, *GIVEN)
    assert status == 0, printed
    assert_no_key(tmp_path, printed, "e/results.json", "e/evaluation.sqlite", "e/.hydra/*.yaml")


@pytest.mark.parametrize("more", [["dry_run=true"], ["games=[Chess]"]])
def test_a_run_that_is_planned_or_refused(tmp_path: Path, more: list[str]) -> None:
    given = [f"opponents=[{{{API}, share: 0.1}}]", "run_dir=r"]
    _, printed = run(tmp_path, "-m", "recipe.spiral.main_spiral", *given, *GIVEN, *more)
    assert_no_key(tmp_path, printed, *([] if "dry" in more[0] else ["r/.hydra/*.yaml"]))


def test_a_command_line_that_cannot_be_read(tmp_path: Path) -> None:
    status, printed = run(tmp_path, "-m", "recipe.spiral.main_eval", f"opponents=[{{{API}", "eval_dir=e", *GIVEN)
    assert status == 2 and "put the argument in single quotes" in printed
    assert_no_key(tmp_path, printed)


class Busy(BaseHTTPRequestHandler):
    """An endpoint that is there, and has no answer now."""

    def do_POST(self) -> None:
        self.send_error(503)

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_a_sweep(tmp_path: Path) -> None:
    """Also where a key is what is swept. The jobs fail in their own processes, as their cache cannot be made."""
    (tmp_path / "file").touch()
    with ThreadingHTTPServer(("127.0.0.1", 0), Busy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base_url = f"http://127.0.0.1:{server.server_port}/v1"
        given = [f"opponents=[{{{API}, share: 0.1, base_url: '{base_url}'}}]", "games=[KuhnPoker]", "hydra.sweep.dir=s"]
        swept = ["-m", "seed=1,2", f"+environment.SWEPT_KEY={MARK}-one", f"+environment.SPIRAL_CACHE={tmp_path}/file"]
        status, printed = run(tmp_path, "-m", "recipe.spiral.main_spiral", *given, *GIVEN, *swept)
        server.shutdown()
    assert status == 1 and printed.count("set SPIRAL_CACHE to another place") > 2, printed
    assert_no_key(tmp_path, printed, "s/multirun.yaml", "s/results.csv", "s/*/.hydra/*.yaml")


def test_what_trackers_note_of_the_command_line(tmp_path: Path) -> None:
    code = "from recipe.spiral.checks import compose; import sys; compose('eval'); print(sys.argv[1:])"
    status, printed = run(tmp_path, "-c", code, f"opponents=[{{{API}}}]", "eval_dir=e", *GIVEN)
    assert status == 0 and "opponents=[{kind: api" in printed
    assert_no_key(tmp_path, printed)
