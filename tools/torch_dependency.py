"""Metadata of the wheel: it requires the minor version of torch that is in the environment which builds it."""

from importlib.metadata import version


def dynamic_metadata(settings, project) -> dict[str, list[str]]:
    major, minor = version("torch").split(".")[:2]
    # Without numpy, which we do not use, torch warns when it is imported.
    return {"dependencies": [f"torch=={major}.{minor}.*", "numpy"]}


def dynamic_wheel(settings) -> dict[str, bool]:
    """A wheel made from the source distribution may have been built beside another torch."""
    return {"dependencies": True}
