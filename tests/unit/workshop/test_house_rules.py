"""Rules for every file of the project that no other tool checks."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
LONGEST_LINES = 450  # a file that scrolls further holds two ideas

# The words are put together here so that this file passes its own check.
FOLDERS = ("work", "root", r"home/\w+", r"Users/\w+", "opt/wheels")
MACHINE_PATH = re.compile(rf"(?<![\w.~$}}-])/(?:{'|'.join(FOLDERS)})/")
HOSTS = (rf"{'py'}pi\.org", rf"{'python'}hosted\.org", r"https?://[^/\s]*(?:nexus|artifactory)")
OPTIONS = (rf"--{'index'}-url", rf"--extra-{'index'}-url", rf"--{'find'}-links")
REGISTRY = re.compile("|".join(HOSTS + OPTIONS))
WRITES = re.compile(
    r"os\.(?:replace|rename|link|mkdir|makedirs|fsync|fdatasync)\(|\.(?:rename|mkdir|write_text|write_bytes|touch)\(|open\([^)]*[\"'][wxa]b?[\"']"
)
PEOPLES_OWN = ("bench/", "studies/", "demonstration/", "cli/")
"""What they write is for the one who called them, and no process starts from it."""
WRITES_ELSEWHERE = {
    "events/durable.py": "the one way to do it",
    "log/disk.py": "the log's, which the simulator puts another in place of",
    "log/store.py": "asks that disk",
    "runtime/journal_file.py": "appends, and settles what it found",
    "client/staging.py": "a second name of a segment to be, for the log that takes it over",
    "pipeline/archive/hadoop.py": "another file system",
    "pipeline/ingest/query.py": "a mark that lasts as long as its process",
    "operate/publisher_keeper.py": "the folder of processes' output",
    "operate/operations.py": "a process's output",
    "operate/region_processes.py": "a process's output",
    "operate/supervisor.py": "a text that is read at once, and removed",
}
PAGE_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def project_files() -> list[Path]:
    """What git holds or would hold; in an unpacked archive without git, all that is not made by a tool."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT,
        capture_output=True,
        check=False,
    )
    if listing.returncode == 0 and listing.stdout:
        named = [CHECKOUT / name for name in listing.stdout.decode().split("\0") if name]
    else:
        made = {".venv", ".git", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}
        named = [path for path in CHECKOUT.rglob("*") if not made & set(path.relative_to(CHECKOUT).parts)]
    return sorted(path for path in named if path.is_file())


def texts() -> list[tuple[Path, str]]:
    found = []
    for path in project_files():
        try:
            found.append((path.relative_to(CHECKOUT), path.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue  # a picture or a recorded file
    return found


@pytest.mark.parametrize("pattern", [MACHINE_PATH, REGISTRY], ids=["machine paths", "registries"])
def test_no_file_names_a_machine_or_a_registry(pattern: re.Pattern[str]) -> None:
    wrong = [
        f"{path}:{number}: {line.strip()[:80]}"
        for path, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]
    assert wrong == []


def test_the_patterns_find_what_they_are_for() -> None:
    assert MACHINE_PATH.search("see /wo" + "rk/main/x")
    assert MACHINE_PATH.search('"/ho' + 'me/someone/x"')
    assert not MACHINE_PATH.search("docs/work/x and ~/work/x and $HOME/root/x")
    assert REGISTRY.search("https://py" + "pi.org/simple")


def test_no_file_of_code_or_tests_scrolls_too_far() -> None:
    long = {
        str(path): text.count("\n")
        for path, text in texts()
        if path.suffix == ".py" and path.parts[0] in ("src", "tests") and text.count("\n") > LONGEST_LINES
    }
    assert long == {}, "find the two ideas in it"


def test_every_package_is_a_package() -> None:
    folders = {path.parent for path, _ in texts() if path.suffix == ".py" and path.parts[0] == "src"}
    assert [folder for folder in sorted(folders) if not (CHECKOUT / folder / "__init__.py").is_file()] == []


def test_test_files_have_names_of_their_own() -> None:
    names = [path.name for path, _ in texts() if path.parts[0] == "tests" and path.name.startswith("test_")]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_links_between_pages_lead_somewhere() -> None:
    broken = [
        f"{path}: {target}"
        for path, text in texts()
        if path.suffix == ".md"
        for target in PAGE_LINK.findall(text)
        if not re.match(r"[a-z]+:", target) and not (CHECKOUT / path.parent / target).exists()
    ]
    assert broken == []


def test_the_launcher_and_the_build_script_can_be_run() -> None:
    for name in ("qanat", ".ci/run"):
        assert (CHECKOUT / name).stat().st_mode & 0o111 == 0o111, name


def test_files_are_replaced_in_one_way() -> None:
    """Who replaces a file by himself forgets to sync it, or its folder, or the folder's name."""
    source = CHECKOUT / "src" / "qanat"
    writers = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if not str(path.relative_to(source)).startswith(PEOPLES_OWN)
        and WRITES.search(path.read_text("utf-8"))
    }
    assert sorted(writers - WRITES_ELSEWHERE.keys()) == [], "use qanat.events.durable"
    assert sorted(WRITES_ELSEWHERE.keys() - writers) == [], "no longer needed here"
