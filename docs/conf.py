"""Sphinx: the pages of docs/, and the APIs of Python and C++ from their comments. `make docs` builds build/docs."""

from __future__ import annotations

import inspect
import operator
import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ConfigError

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs/_ext"))

project = "bie"
author = "the bie project"
copyright = "the bie project, Apache-2.0"
version = re.search(r"project\(bie VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_parser", "breathe", "sphinx_copybutton", "cpp_headers"]

html_theme = "furo"
html_title = f"bie {version}"
html_static_path = ["_static"]
html_css_files = ["bie.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0b5fa5",
        "color-brand-content": "#0b5fa5",
        "color-code-background": "#f0f3f7",
    },
    "dark_css_variables": {"color-brand-primary": "#7db8ee", "color-brand-content": "#7db8ee"},
}
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_inherit_docstrings = False  # those of torch are torch's
autodoc_typehints = "description"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

DOXYGEN = ROOT / "build/doxygen"
breathe_projects = {"bie": str(DOXYGEN / "xml")}
breathe_default_project = "bie"
breathe_default_members = ("members",)
breathe_show_include = False

DOXYFILE = """
INPUT_FILTER = "sed -E -f docs/_ext/comments.sed"
INPUT = include
RECURSIVE = YES
FILE_PATTERNS = *.h
STRIP_FROM_PATH = include
OUTPUT_DIRECTORY = {output}
GENERATE_XML = YES
GENERATE_HTML = NO
GENERATE_LATEX = NO
XML_PROGRAMLISTING = NO
MACRO_EXPANSION = YES
EXPAND_ONLY_PREDEF = YES
PREDEFINED = BIE_API= BIE_RUNTIME_API= BIE_HOST_DEVICE= TORCH_MODULE(name)=
EXTRACT_ALL = YES
JAVADOC_AUTOBRIEF = YES
MARKDOWN_SUPPORT = YES
AUTOLINK_SUPPORT = NO
SORT_MEMBER_DOCS = NO
QUIET = YES
WARN_IF_UNDOCUMENTED = NO
WARN_IF_INCOMPLETE_DOC = NO
"""


def run_doxygen(app: Sphinx) -> None:
    """Writes the XML that breathe reads. A warning of Doxygen ends the build."""
    if not shutil.which("doxygen"):
        raise ConfigError("doxygen is not on the PATH; tools/setup.sh installs it")
    DOXYGEN.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["doxygen", "-"], input=DOXYFILE.format(output=DOXYGEN), capture_output=True, text=True, cwd=ROOT, check=False
    )
    if done.returncode or done.stderr:
        raise ConfigError(f"doxygen: {done.stderr}")


def link_sources(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Turns "docs/spec/optimizer.md#galore" in a docstring into a link from the page at hand."""
    here = posixpath.dirname(app.env.docname)

    def link(found: re.Match[str]) -> str:
        page, anchor = found["page"], found["anchor"] or ""
        return f"`{page}{anchor.replace('#', ': ')} <{posixpath.relpath(page, here or '.')}.html{anchor}>`__"

    for number, line in enumerate(lines):
        # "n." alone would begin a list.
        line = re.sub(r"^(\s+)(\w)\.$", r"\1``\2``.", line)
        lines[number] = re.sub(r"`{0,2}docs/(?P<page>[\w/-]+)\.md(?P<anchor>#[\w-]+)?`{0,2}", link, line)


def types_of_arguments(app: Sphinx, domain: str, kind: str, content: object) -> None:
    """A class's arguments have the types of its constructor; autodoc would take those of attributes of that name."""
    if (domain, kind) != ("py", "class"):
        return
    signature = content.parent[0]
    name = f"{signature['module']}.{signature['fullname']}"
    thing = operator.attrgetter(signature["fullname"])(sys.modules[signature["module"]])
    parameters = inspect.signature(thing).parameters.values()
    types = {p.name: p.annotation for p in parameters if isinstance(p.annotation, str)}
    app.env.temp_data.get("annotations", {}).get(name, {}).update(types)


def setup(app: Sphinx) -> None:
    app.connect("object-description-transform", types_of_arguments, priority=100)  # before autodoc
    app.connect("builder-inited", run_doxygen)
    app.connect("autodoc-process-docstring", link_sources, priority=900)  # after napoleon
