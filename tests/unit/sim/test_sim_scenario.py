"""Scenario files: what they may say, and what a mistake in one is answered with."""

from pathlib import Path

import pytest

from qanat.checks.scenarios import load_scenario
from qanat.sim import BadScenario, build

GOOD = """
protocol = "push-sum"
[[nodes]]
name = "n"
count = 3
region = "eu"
[[nodes]]
name = "n"
region = "us"
uplink_mbit_s = 10.0
[links.default]
latency_ms = 50.0
loss = 0.1
[links.within]
latency_ms = 1.0
[[links.between]]
regions = ["us", "eu"]
latency_ms = 40.0
[check]
checkers = ["mass"]
"""


def load(tmp_path: Path, text: str) -> object:
    path = tmp_path / "s.toml"
    path.write_text(text)
    return load_scenario(path)


def test_a_file_becomes_nodes_and_links(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(GOOD)
    scenario = load_scenario(path)
    assert [place.address for place in scenario.places] == ["eu/n-1", "eu/n-2", "eu/n-3", "us/n-1"]
    assert scenario.links.spec("eu", "us").latency_ms == 40.0
    assert scenario.links.spec("us", "eu").loss == 0.1
    assert scenario.links.spec("eu", "eu").latency_ms == 1.0
    assert scenario.links.spec("eu", "elsewhere").latency_ms == 50.0
    world = build(scenario, 1)
    assert world.node_list[3].uplink is not None
    assert world.node_list[0].uplink is None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("protocol =", "protocl ="), "s.toml: unknown key 'protocl'; did you mean 'protocol'?"),
        (('"push-sum"', '"push-some"'), "unknown protocol 'push-some'; did you mean 'push-sum'?"),
        (('["mass"]', '["mas"]'), "check.checkers: unknown checker 'mas'; did you mean 'mass'?"),
        (("loss = 0.1", "loss = 1.5"), "links.default: loss is a probability"),
        (("loss = 0.1", "losses = 0.1"), "links.default: unknown key 'losses'; did you mean 'loss'?"),
        (("[links.default]", "[links.defaults]"), "links: unknown key 'defaults'"),
        (('["us", "eu"]', '["us", "mars"]'), "unknown region 'mars'; there are: eu, us"),
        (('["us", "eu"]', '"us"'), "must name two regions"),
        (("count = 3", "count = 0"), "nodes[0]: count must lie between"),
        (("count = 3", 'count = "3"'), "nodes[0].count: Expected `int`"),
        (("[check]", '[[nodes]]\nname = "n"\nregion = "us"\n[check]'), "the same name and region"),
        (
            ("[check]", '[[faults]]\nkind = "crash"\nnodes = ["x*"]\n[check]'),
            "faults[0]: no node matches 'x*'",
        ),
        (("[check]", '[swarm]\nnodes = ["x*"]\n[check]'), "swarm: no node matches 'x*'"),
        (
            ("[check]", '[[faults]]\nkind = "cut"\nisolate = ["*"]\nbetween = [["*"], ["*"]]\n[check]'),
            "faults[0]: give `between` or `isolate`, not both",
        ),
        (("[check]", "[check]\nevery = 0"), "every must be at least 1"),
        (("[check]", "[config]\nbranching = 0\n[check]"), "config: branching and retry_rounds must be"),
        (("[check]", "[config]\nbranch = 2\n[check]"), "config: unknown key 'branch'"),
        (("[check]", "[workload]\n[check]"), "workload: `kind` is missing; it is one of: values"),
        (
            ("[check]", '[workload]\nkind = "value"\n[check]'),
            "unknown workload 'value'; did you mean 'values'?",
        ),
        (("[check]", '[workload]\nkind = "values"\nhi = 2\n[check]'), "workload: unknown key 'hi'"),
        (("[check]", "[[faults]]\nat_s = 1.0\n[check]"), "faults[0]: `kind` is missing; it is one of: crash"),
        (
            ("[check]", '[[faults]]\nkind = "crahs"\n[check]'),
            "faults[0]: unknown kind 'crahs'; did you mean 'crash'?",
        ),
        (("[check]", '[[faults]]\nkind = "cut"\nat = 1\n[check]'), "faults[0]: unknown key 'at'"),
        (("[check]", '[[faults]]\nkind = "cut"\nat_s = -1.0\n[check]'), "at_s must not be negative"),
        (("[check]", '[[faults]]\nkind = "clock-drift"\nppm = 1000000\n[check]'), "ppm must lie between"),
        (("[check]", '[swarm]\nkinds = ["quake"]\n[check]'), "there is no 'quake'; there are crash"),
        (("[check]", "[swarm]\nlasts_s = [2.0, 1.0]\n[check]"), "lasts_s is a range"),
        (("[check]", "[time]\nsafety_s = 0.0\n[check]"), "safety_s and poll_ms must be above 0"),
        (("[check]", "[disk]\ntorn = 2.0\n[check]"), "torn is a probability"),
        (("[check]", "[check"), "not valid TOML"),
    ],
)
def test_a_mistake_is_answered_with_where_and_what_exists(
    tmp_path: Path, change: tuple[str, str], sentence: str
) -> None:
    with pytest.raises(BadScenario) as refused:
        load(tmp_path, GOOD.replace(*change, 1))
    assert sentence in str(refused.value)


def test_no_nodes_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(BadScenario, match="no nodes"):
        load(tmp_path, 'protocol = "push-sum"\nnodes = []')
    with pytest.raises(BadScenario, match="there is no scenario file"):
        load_scenario(tmp_path / "nowhere.toml")
    with pytest.raises(BadScenario, match="cannot read"):
        load_scenario(tmp_path)


@pytest.mark.parametrize(
    "path", sorted(Path(__file__).parents[3].glob("scenarios/*.toml")), ids=lambda path: path.stem
)
def test_every_scenario_of_the_house_can_be_read(path: Path) -> None:
    assert load_scenario(path).about
