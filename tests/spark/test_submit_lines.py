"""The lines for `spark-submit` on the page, read by Spark's own code: options that it has, for clusters that
it knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.spark.submit_lines import APP, CHECKOUT, lines, ours

from qanat.cli.main import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.paper("D9")


class Submission(NamedTuple):
    """What Spark makes of a line."""

    app: str
    words: list[str]
    settings: Any
    starts: str


def submission(spark: SparkSession, words: list[str]) -> Submission:
    jvm: Any = spark.sparkContext._jvm
    listed = jvm.java.util.ArrayList()
    for word in words:
        listed.add(word)
    sequence = jvm.scala.jdk.javaapi.CollectionConverters.asScala(listed).toSeq()
    environment = getattr(getattr(jvm.scala.sys, "package$"), "MODULE$").env()
    environment = environment.updated("HADOOP_CONF_DIR", str(CHECKOUT))
    read = jvm.org.apache.spark.deploy.SparkSubmitArguments(sequence, environment)
    assert read.isPython()
    for_app = [read.childArgs().apply(at) for at in range(read.childArgs().size())]
    made = jvm.org.apache.spark.deploy.SparkSubmit().prepareSubmitEnvironment(read, jvm.scala.Option.empty())
    return Submission(read.primaryResource(), for_app, made._3(), made._4())


@pytest.mark.parametrize(
    ("kind", "starts"),
    [
        ("spark", "org.apache.spark.deploy.PythonRunner"),
        ("yarn", "org.apache.spark.deploy.yarn.YarnClusterApplication"),
        ("k8s", "org.apache.spark.deploy.k8s.submit.KubernetesClientApplication"),
    ],
)
def test_spark_reads_the_line_as_it_is_meant(spark: SparkSession, kind: str, starts: str) -> None:
    words = lines()[kind]
    made = submission(spark, words)
    assert made.starts == starts
    assert made.app.endswith(APP)
    assert made.words == ours(words)
    given = [word.partition("=") for word in words if word.startswith("spark.")]
    assert [(key, made.settings.get(key)) for key, _, _ in given] == [(key, value) for key, _, value in given]


def test_the_page_has_a_line_for_each_kind_of_cluster() -> None:
    assert list(lines()) == ["spark", "yarn", "k8s"]


@pytest.mark.parametrize("kind", ["spark", "yarn", "k8s"])
def test_our_own_words_on_the_line_are_words_that_we_have(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Asked for its help, the command reads all of them first."""
    assert main([*ours(lines()[kind]), "--help"]) == 0
    assert "usage:" in capsys.readouterr().out


def test_an_option_that_spark_does_not_have_is_refused(spark: SparkSession) -> None:
    """So that this way of reading the lines can fail."""
    with pytest.raises(Exception, match="Unrecognized option '--bogus'"):
        submission(spark, ["--master", "yarn", "--bogus", "x", APP])
