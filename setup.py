"""What pyproject.toml cannot say: files of the wheel that are not in the package's own folder."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

COPIES = {"src/tracker-health.pth": "tracker-health.pth"}  # Python reads it at its start, next to the package
COPIES |= {str(schema): f"tracker_health/schemas/{schema.name}" for schema in Path("docs").glob("*.schema.json")}


class BuildWithCopies(build_py):
    """Puts them where a wheel is unpacked into."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for source, place in COPIES.items():
            target = Path(self.build_lib, place)
            self.mkpath(str(target.parent))
            self.copy_file(source, str(target), preserve_mode=False)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """See setuptools."""
        return [
            *super().get_outputs(include_bytecode),
            *(str(Path(self.build_lib, place)) for place in COPIES.values()),
        ]


setup(cmdclass={"build_py": BuildWithCopies})
