"""The version of the installed package."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """Return the installed version, or "0+uninstalled" for a source folder, which has no metadata."""
    try:
        return version("argus-tile")
    except PackageNotFoundError:
        return "0+uninstalled"
