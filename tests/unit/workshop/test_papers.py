"""`docs/papers.md` says what is true: every row once, links that exist, tests that name their row."""

from __future__ import annotations

from pathlib import Path

import pytest

from qanat.cli.main import main
from qanat_workshop import papers
from qanat_workshop.papers import IDS, NOT_BUILT, Row, cell_of_tests, link, marks, parse, rows, update

CHECKOUT = Path(__file__).resolve().parents[3]
REFRESH = "run `./qanat test --update-papers`"


@pytest.fixture(scope="module")
def found() -> dict[str, set[Path]]:
    return marks(CHECKOUT)


def test_every_mechanism_has_one_row() -> None:
    assert [row.id for row in rows(CHECKOUT)] == list(IDS)


def test_every_row_says_what_the_mechanism_is() -> None:
    assert [row.id for row in rows(CHECKOUT) if len(row.mechanism) < 20 or not row.docs or not row.code] == []


def test_every_link_leads_somewhere() -> None:
    folder = (CHECKOUT / papers.LEDGER).parent
    broken = [
        (row.id, target) for row in rows(CHECKOUT) for target in row.links() if not (folder / target).exists()
    ]
    assert broken == []


def test_markers_name_rows_that_exist(found: dict[str, set[Path]]) -> None:
    assert {name: files for name, files in found.items() if name not in IDS} == {}


def test_the_column_of_tests_is_what_the_markers_say(found: dict[str, set[Path]]) -> None:
    stale = [
        row.id
        for row in rows(CHECKOUT)
        if row.test_files() != {link(path) for path in found.get(row.id, set())}
    ]
    assert stale == [], REFRESH


def test_a_row_is_built_when_and_only_when_a_test_proves_it(found: dict[str, set[Path]]) -> None:
    unproved = [row.id for row in rows(CHECKOUT) if row.built and row.id not in found]
    assert unproved == [], "a row that names code needs a test with its marker"
    unnamed = [row.id for row in rows(CHECKOUT) if not row.built and row.id in found]
    assert unnamed == [], "a row whose tests exist needs its code named in docs/papers.md"


def test_built_rows_link_to_their_code() -> None:
    assert [row.id for row in rows(CHECKOUT) if row.built and "](../src/" not in row.code] == []


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A ledger of two rows and one marked test, for the machinery itself."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "papers.md").write_text(
        "# Ledger\n\n| id | mechanism | code | tests | page |\n|---|---|---|---|---|\n| S1 | publish |"
        f" [log](../src/log.py) | – | – |\n| S2 | collect | {NOT_BUILT} | [old](../tests/test_old.py) | – |\n"
    )
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    (tmp_path / "tests" / "unit" / "test_log.py").write_text(
        "import pytest\nimport a_module_that_is_not_there\npytestmark = [pytest.mark.paper('S1'),"
        " pytest.mark.slow]\nclass TestIt:\n    @pytest.mark.paper('S1', 'S3')\n    def test_it(self): ...\n"
    )
    return tmp_path


def test_markers_are_found_without_importing(project: Path) -> None:
    assert marks(project) == {"S1": {Path("tests/unit/test_log.py")}, "S3": {Path("tests/unit/test_log.py")}}


def test_update_rewrites_only_the_column_of_tests(project: Path) -> None:
    assert update(project) == 2
    first, second = rows(project)
    assert first == Row("S1", "publish", "[log](../src/log.py)", "[log](../tests/unit/test_log.py)", "–")
    assert second == Row("S2", "collect", NOT_BUILT, "–", "–")
    assert first.built
    assert not second.built
    assert update(project) == 0
    assert (project / "docs" / "papers.md").read_text().startswith("# Ledger\n\n| id |")


def test_the_command_updates_the_checkout(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("qanat_workshop.run_tests.checkout", lambda: project)
    assert main(["test", "--update-papers"]) == 0
    assert main(["test", "--update-papers"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "docs/papers.md: 2 rows changed",
        "docs/papers.md: nothing to change",
    ]


def test_a_row_with_missing_cells_is_refused() -> None:
    assert parse("| id | mechanism |") is None
    assert parse("some text") is None
    with pytest.raises(ValueError, match=r"S1 .* has 2 cells"):
        parse("| S1 | a | b |")


def test_cells_are_sorted() -> None:
    cell = cell_of_tests({Path("tests/unit/b/test_z.py"), Path("tests/unit/a/test_y.py")})
    assert cell == "[y](../tests/unit/a/test_y.py), [z](../tests/unit/b/test_z.py)"
