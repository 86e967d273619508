"""Imports of compiled extensions that may be absent."""

from bie.bitorch.safe_import import ExtensionModulePlaceholder, import_extension

__all__ = ["ExtensionModulePlaceholder", "import_extension"]
