"""Sphinx: the pages of docs/ and the API reference from the docstrings. `make docs` builds build/docs."""

project = "bie"
author = "the bie project"
extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_parser"]
html_theme = "alabaster"
html_theme_options = {"description": "Low-bit layers for stock PyTorch", "page_width": "70em", "fixed_sidebar": True}
exclude_patterns = ["_build"]
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_inherit_docstrings = False  # those of torch are torch's
autodoc_typehints = "description"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
# Pages say "docs/migration.md" so that they read well in the repository too.
myst_heading_anchors = 3
suppress_warnings = ["myst.xref_missing"]
