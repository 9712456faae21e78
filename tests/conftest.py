"""What every test stands on: an empty home, no model settings, and property tests that a busy machine cannot fail."""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.ending import end_all

MODEL_SETTING = re.compile(r"(_API_KEY|_BASE_URL)$|^(OLLAMA|KIPU)_")
LOST_POSTGRES = re.compile(r"server closed the connection|the connection is (lost|closed)|terminating connection")

# Time says nothing on a shared machine; how many examples a test draws is its own business.
settings.register_profile(
    "kipu", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("kipu")


@pytest.fixture(scope="session", autouse=True)
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give the run a home of its own: nobody's sessions, keys or settings are read, and none are written."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if MODEL_SETTING.search(name) or name.startswith("XDG_"):
                patch.delenv(name)
        patch.setenv("HOME", str(home))
        yield home
    end_all()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what PostgreSQL said last where a test lost its connection: the driver knows only that it is gone."""
    report = yield
    if report.failed and LOST_POSTGRES.search(report.longreprtext):
        from tests.servers import last_words_of_postgres

        report.sections.append(("the end of PostgreSQL's log", last_words_of_postgres()))
    return report
