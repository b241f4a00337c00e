"""The deployment file: what it says, and what each mistake in it is told."""

from pathlib import Path

import pytest

from qanat.log.config import Policy
from qanat.operate.file import Deployment, Link, Region, read, standard, write
from qanat.protocols.chain import ChainConfig
from qanat.replica.settings import StreamSettings
from qanat.runtime.config import BadConfiguration

WHOLE = """\
name = "shop"
drills = true

[regions.eu]
replicas = 3
[regions.us]

[[links]]
between = ["eu", "us"]
compression = "zstd"

[streams.prices]
owner = "eu"
mode = "interval"
policy = { keep_last = 1000 }

[chain]
ack_ms = 100
"""


def test_a_whole_file(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(WHOLE)
    deployment = read(file)
    assert deployment == Deployment(
        name="shop",
        drills=True,
        regions={"eu": Region(3), "us": Region(2)},
        links=(Link(("eu", "us"), "zstd"),),
        streams={"prices": StreamSettings(owner="eu", mode="interval", policy=Policy(keep_last=1000))},
        chain=ChainConfig(ack_ms=100.0),
    )
    assert deployment.compression("us", "eu") == "zstd"
    assert deployment.compression("us", "asia") == ""


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(WHOLE)
    for deployment in (read(file), standard(), standard("other", first_port=0)):
        again = tmp_path / "again.toml"
        again.write_text(write(deployment))
        assert read(again) == deployment


def test_without_a_file_there_are_three_regions_with_a_stream_each() -> None:
    deployment = standard()
    assert list(deployment.regions) == ["eu", "us", "asia"]
    assert {region.replicas for region in deployment.regions.values()} == {2}
    assert {name: stream.owner for name, stream in deployment.streams.items()} == {
        "eu-events": "eu",
        "us-events": "us",
        "asia-events": "asia",
    }
    assert deployment.drills


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "`regions` (file shop.toml, line 1) is empty: expected at least one region, as [regions.eu]"),
        (
            "[regions.eu]\nreplicas = 0\n",
            "`regions.eu.replicas` (file shop.toml, line 2) cannot be 0: expected `int` >= 1",
        ),
        (
            "\n[regions.eu]\nreplica = 2\n",
            "`regions.eu.replica` (file shop.toml, line 3) is not known: did you mean `replicas`?",
        ),
        (
            "[regions.EU]\n",
            (
                "`regions.EU` (file shop.toml, line 1) is no name of a region: expected small letters, digits"
                " and dashes"
            ),
        ),
        (
            "[regions.eu]\n[region.us]\n",
            "`region` (file shop.toml, line 2) is not a setting: did you mean `regions`?",
        ),
        (
            'name = "My Shop"\n[regions.eu]\n',
            "`name` (file shop.toml, line 1) cannot be 'My Shop': expected small letters, digits and dashes",
        ),
        (
            "[regions.eu]\n[regions.us]\n[streams.prices]\nowner = 'asia'\n",
            "`streams.prices.owner` (file shop.toml, line 4) is 'asia': expected one of the regions eu, us",
        ),
        (
            "[regions.eu]\n[streams.prices]\nmode = 'always'\n",
            "`streams.prices` (file shop.toml, line 2) needs `owner`",
        ),
        (
            "[regions.eu]\n[streams.prices]\nowner = 'eu'\nmode = 'sometimes'\n",
            (
                "`streams.prices.mode` (file shop.toml, line 4) cannot be 'sometimes': expected one of"
                " 'always', 'interval', 'memory'"
            ),
        ),
        (
            "[regions.eu]\n[streams.prices]\nowner = 'eu'\n[streams.prices.policy]\nkeep_last = 0\n",
            (
                "`streams.prices.policy` (file shop.toml, line 4) does not fit together: keep_last"
                " must be at least 1 event, not 0"
            ),
        ),
        (
            "[regions.eu]\n[regions.us]\n[[links]]\nbetween = ['eu', 'asia']\n",
            "`links.0.between` (file shop.toml, line 4) names 'asia': expected two of the regions eu, us",
        ),
        (
            (
                "[regions.eu]\n[regions.us]\n[[links]]\nbetween = ['eu', 'us']\n[[links]]\nbetween = ['us',"
                " 'eu']\n"
            ),
            "`links.1.between` (file shop.toml, line 6) names the link us – eu a second time",
        ),
        (
            "[regions.eu]\n[regions.us]\n[[links]]\nbetween = ['eu', 'us']\ncompression = 'rar'\n",
            (
                "`links.0.compression` (file shop.toml, line 5) cannot be 'rar': expected one of '', 'lz4',"
                " 'zstd'"
            ),
        ),
        (
            "[regions.eu]\n\n[chain]\nack_ms = 100\nfailure_ms = 50\n",
            (
                "`chain` (file shop.toml, line 3) does not fit together: failure_ms must be at least twice"
                " ack_ms, because one late message is no failure"
            ),
        ),
        (
            "[regions.eu]\n[chain]\nack = 100\n",
            "`chain.ack` (file shop.toml, line 3) is not a setting: did you mean `chain.ack_ms`?",
        ),
        (
            "[regions.eu]\ncoordinator = 'zookeeper://a:x'\n",
            (
                "`regions.eu.coordinator` (file shop.toml, line 2) is wrong: 'zookeeper://a:…': its port is"
                " not a number from 1 to 65535"
            ),
        ),
        (
            "[regions.eu]\n[[links]]\nbetween = ['eu']\n",
            (
                "`links.0.between` (file shop.toml, line 3) cannot be ['eu']: expected `array` of length 2,"
                " got 1"
            ),
        ),
        (
            "[regions.eu\n",
            "shop.toml is not TOML: Expected ']' at the end of a table declaration (at line 1, column 12)",
        ),
    ],
)
def test_a_mistake_is_told_with_file_line_and_what_was_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shop.toml").write_text(text)
    with pytest.raises(BadConfiguration) as caught:
        read("shop.toml")
    assert str(caught.value).partition("; default")[0] == message


def test_no_file() -> None:
    with pytest.raises(BadConfiguration, match=r"cannot read the configuration nowhere.toml: No such file"):
        read("nowhere.toml")
