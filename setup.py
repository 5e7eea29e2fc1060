"""What pyproject.toml cannot say: a file that Python reads at its start lies beside the package."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

STARTED = "tracker-health.pth"


class BuildWithStart(build_py):
    """Puts the ``.pth`` file where a wheel is unpacked into."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            self.copy_file(f"src/{STARTED}", str(Path(self.build_lib, STARTED)), preserve_mode=False)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """See setuptools."""
        return [*super().get_outputs(include_bytecode), str(Path(self.build_lib, STARTED))]


setup(cmdclass={"build_py": BuildWithStart})
