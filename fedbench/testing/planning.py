"""What planning may cost."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

CODE = """
import sys
from fedbench.plugins import import_plugin
import_plugin(sys.argv[1], "the plug-in")
sys.exit(3 if "torch" in sys.modules else 0)
"""


def imports_no_torch(target: Any) -> None:
    """A process that imports what defines a plug-in has not imported torch."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", CODE, target.__module__]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode != 3, f"{target.__module__} imports torch; use fedbench.lazy, or import it in functions"
    assert done.returncode == 0, done.stderr
