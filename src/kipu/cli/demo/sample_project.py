"""The small project of the tour: one function with a fault, and the test that finds it."""

from __future__ import annotations

from pathlib import Path

TEST_COMMAND = "python3 -B -m unittest"
FAULTY_FILE = "shapes.py"
FILES = {
    FAULTY_FILE: '''\
"""Areas of plain shapes."""


def rectangle(width, height):
    return width + height
''',
    "test_shapes.py": """\
import unittest

from shapes import rectangle


class Areas(unittest.TestCase):
    def test_rectangle(self):
        self.assertEqual(rectangle(3, 4), 12)


if __name__ == "__main__":
    unittest.main()
""",
}


def make_project(folder: Path) -> None:
    """Write the project's files into an empty folder."""
    folder.mkdir()
    for name, content in FILES.items():
        (folder / name).write_text(content, encoding="utf-8")
