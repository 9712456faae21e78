"""The store contract as a suite: for pytest (`suite.StoreConformance`) and without it (`run`)."""

from kipu.testing.conformance.catalogue import all_requirements, markdown_table
from kipu.testing.conformance.place import Capabilities, FunctionPlace, Place, PlaceMaker, UrlPlace
from kipu.testing.conformance.report import Finding, Outcome, Report
from kipu.testing.conformance.requirement import Requirement
from kipu.testing.conformance.runner import run

__all__ = [
    "Capabilities",
    "Finding",
    "FunctionPlace",
    "Outcome",
    "Place",
    "PlaceMaker",
    "Report",
    "Requirement",
    "UrlPlace",
    "all_requirements",
    "markdown_table",
    "run",
]
