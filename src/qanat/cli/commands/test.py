"""`qanat test`: everything that must be true before a change is kept; in a checkout alone."""

from __future__ import annotations

import argparse

from qanat.runtime.workshop import has_workshop, workshop

FORWARDS = True

EXAMPLES = """\
examples:
  qanat test                          everything
  qanat test --fast                   without integration and slow tests
  qanat test --soak                   the long proofs alone: tests marked soak, minutes to hours
  qanat test tests/unit/log -k crash  other words go to pytest
  qanat test --only types             one step alone
  qanat test --update-papers          write the tests column of docs/papers.md from the markers
  qanat test --update-damage          write docs/damage.md by what happens now
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    if has_workshop():
        workshop("run_tests", "the tests are").add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    return int(workshop("run_tests", "the tests are").run(args))
