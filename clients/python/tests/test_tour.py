"""The tour of the README runs, and prints what the README says."""

import os
import pathlib
import subprocess
import sys

from harness import Server

HERE = pathlib.Path(__file__).resolve().parents[1]


def test_the_tour_prints_what_the_readme_shows() -> None:
    server = Server()
    try:
        environment = {**os.environ, "CHIMERA_SERVER": server.url, "PYTHONPATH": str(HERE / "src")}
        command = [sys.executable, str(HERE / "examples/tour.py"), str(server.folder / "data")]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    finally:
        server.stop()
    assert ran.stderr == ""
    readme = (HERE / "README.md").read_text()
    assert f"```console\n$ python examples/tour.py\n{ran.stdout}```\n" in readme
    program = (HERE / "examples/tour.py").read_text().partition('"""\n\n')[2]
    assert f"```python\n{program}```\n" in readme
