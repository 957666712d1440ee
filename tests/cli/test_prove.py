"""`workbench prove` from the outside: one strict JSON object, exit codes, the page, the gain verdicts."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def prove(*words, cwd):
    code = "import sys; from workbench.cli.app import main; sys.argv = ['workbench', 'prove', *sys.argv[1:]]; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=cwd, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip


def strict(text):
    return json.loads(text, parse_constant=lambda name: (_ for _ in ()).throw(ValueError(name)))


def test_json_lists_domain_and_method_and_writes_the_page(tmp_path):
    done = prove("max-*", "--self-test", "--json", "--out", "out with space", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    body = strict(done.stdout)
    assert body["ok"] is True
    assert body["figures"]["certificates"] == 2
    assert body["figures"]["failed"] == 0
    assert body["figures"]["falsehoods"] == body["figures"]["falsehoods_rejected"] >= 3
    for row in body["results"]:
        assert row["domain"]
        assert row["method"]
        assert row["holds"] is True
    page = (tmp_path / body["paths"]["page"]).read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    assert (tmp_path / body["paths"]["run"] / "max-varentropy.json").exists()
    assert "\r" not in done.stderr


def test_gains_are_judged_with_exit_codes(tmp_path):
    good = prove("i-law", "--gain", "1.9", "--json", cwd=tmp_path)
    assert good.returncode == 0
    assert strict(good.stdout)["figures"]["static_gain"] == 1.0
    bad = prove("i-law", "--gain", "2.0", "--gain", "2.1", "--json", cwd=tmp_path)
    assert bad.returncode == 1
    assert strict(bad.stdout)["figures"] == {"certified": 0, "not_certified": 2}
    late = prove("i-law", "--gain", "0.58", "--gain", "0.60", "--delay", "2", cwd=tmp_path)
    assert late.returncode == 1
    assert late.stdout.count("not certified") == 2


def test_bad_input_is_one_line_and_two(tmp_path):
    for words in (["nothing"], ["i-law"], ["i-law", "--gain", "much"], ["tau-identity", "--gain", "1"]):
        done = prove(*words, cwd=tmp_path)
        assert done.returncode == 2, words
        assert len(done.stderr.strip().splitlines()) == 1
        assert "Traceback" not in done.stderr
