"""wheel_notices.py WHEEL OUT BUILD[:TARGET]...: copies a wheel to the folder OUT, with what is compiled into it by
others written beside its licence: THIRD_PARTY.txt, the licences, and sboms/bie.cdx.json, a bill of materials
(CycloneDX).

What that is comes from ninja's records of each folder BUILD, or of one TARGET in it: the headers that its sources read
and the archives that its programs were linked with, by the packages of this system and of Python. The system's
compilers and C library are left out, and so are shared libraries: auditwheel, which lays them into the wheel, writes a
bill of its own. The output ends with the files that no package owns, as the wheel lacks their licences.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import re
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

ROOT = Path(__file__).resolve().parent.parent
# Their licences have an exception for what they compile.
_TOOLCHAIN = re.compile(r"^(libc6|linux-libc|libgcc|libstdc\+\+|libclang|libllvm|clang|gcc|g\+\+)")


@dataclass(frozen=True, order=True)
class Part:
    kind: str  # deb, pypi or generic: of a package URL
    name: str
    version: str
    licences: tuple[str, ...]  # their texts


def lines(*command: str | Path) -> list[str]:
    return subprocess.run([*map(str, command)], check=True, capture_output=True, text=True).stdout.splitlines()


def files_read(build: Path, targets: list[str]) -> set[str]:
    """The headers, archives and schemas that a build, or these targets of it, read, those of the tree among them."""
    words = {word for line in lines("ninja", "-C", build, "-t", "commands", *targets) for word in line.split()}
    headers, wanted = set(), False
    for line in lines("ninja", "-C", build, "-t", "deps"):
        if not line.startswith("    "):
            wanted = line.split(":")[0] in words  # a command names what it writes
        elif wanted:
            headers.add(line.strip())
    found = headers | {word for word in words if word.endswith((".a", ".proto"))}
    return {os.path.normpath(os.path.join(build, name)) for name in found}


def debian_owners(names: set[str]) -> dict[str, str]:
    """Returns the package of each file that belongs to one."""
    installed = sorted(name for name in names if name.startswith("/usr/"))
    owned = subprocess.run(["dpkg-query", "--search", *installed], capture_output=True, text=True).stdout
    rows = (line.rpartition(": ") for line in owned.splitlines())
    return {name: packages.split(":")[0] for packages, _, name in rows}


def debian_part(package: str) -> Part:
    return Part(
        "deb",
        package,
        lines("dpkg-query", "-W", "-f", "${Version}", package)[0],
        (Path("/usr/share/doc", package, "copyright").read_text(),),
    )


def python_owners(names: set[str]) -> dict[str, metadata.Distribution]:
    """Returns the distribution of each file that belongs to one."""
    # tools/make_wheels.sh unpacks other torches into build/torches.
    found = (re.match(r".*/(?:site-packages|build/torches/[^/]+)/", name) for name in names)
    folders = sorted({match[0] for match in found if match})
    return {
        name: distribution
        for distribution in metadata.distributions(path=folders)
        for file in distribution.files or []
        if (name := str(distribution.locate_file(file))) in names
    }


def python_part(distribution: metadata.Distribution) -> Part:
    texts = [
        Path(distribution.locate_file(file)).read_text(errors="replace")
        for file in distribution.files or []
        if file.name.upper().startswith(("LICENSE", "NOTICE", "COPYING")) and ".dist-info" in str(file)
    ]
    return Part("pypi", distribution.metadata["Name"].lower(), distribution.version, tuple(texts))


def digits_parts() -> list[Part]:
    """Returns the data set that tools/make_digits.py writes into a source, and scikit-learn, which has it."""
    whole = python_part(metadata.distribution("scikit-learn"))
    # The first line of hyphens ends scikit-learn's own licence. Those of the libraries in its wheel follow.
    own = tuple(text.partition("\n----\n")[0] for text in whole.licences)
    credit = (
        "E. Alpaydin and C. Kaynak: Optical Recognition of Handwritten Digits. UCI Machine Learning Repository, 1998.\n"
        "https://doi.org/10.24432/C50P49\n\n"
        "Under CC BY 4.0: https://creativecommons.org/licenses/by/4.0/\n"
        "The program has the 1797 images that scikit-learn has, of 8 x 8 values, in two parts."
    )
    return [
        Part("generic", "optical-recognition-of-handwritten-digits", "1998", (credit,)),
        Part("pypi", whole.name, whole.version, own),
    ]


def cuda_toolkits(build: Path) -> dict[Path, Part]:
    """Returns the CUDA runtime that is linked, by the folder of its toolkit."""
    cache = (build / "CMakeCache.txt").read_text()
    compiler = re.search(r"^CMAKE_CUDA_COMPILER:\w+=(.+)", cache, re.MULTILINE)
    if "cudart_static" not in "".join(lines("ninja", "-C", build, "-t", "commands")) or compiler is None:
        return {}
    (release,) = re.findall(r"release [\d.]+, V([\d.]+)", "\n".join(lines(compiler[1], "--version")))
    says = "The static CUDA runtime, under NVIDIA's licence of the CUDA toolkit: https://docs.nvidia.com/cuda/eula/"
    return {Path(compiler[1]).resolve().parent.parent: Part("generic", "cuda-cudart", release, (says,))}


def is_ours(file: Path, builds: set[Path]) -> bool:
    """Tells whether a build made a file or the project's tree has it, where .venv and build hold files of others."""
    others = (ROOT / ".venv", ROOT / "build")
    in_tree = file.is_relative_to(ROOT) and not any(map(file.is_relative_to, others))
    return in_tree or any(map(file.is_relative_to, builds))


def ownerless(names: set[str], builds: set[Path], toolkits: set[Path]) -> list[str]:
    """Returns the names of files that belong neither to the project nor to a CUDA toolkit."""
    # A package owns the headers of a compiler in /usr/bin.
    toolkits = toolkits - {Path("/usr")}
    files = {name: Path(name).resolve() for name in names}
    return sorted(
        name
        for name, file in files.items()
        if not is_ours(file, builds) and not any(map(file.is_relative_to, toolkits))
    )


def notices(parts: list[Part]) -> str:
    """Returns all licences, a text that several parts have once."""
    rule = "=" * 80
    printed: set[str] = set()
    pages = []
    for part in parts:
        texts = [text for text in dict.fromkeys(part.licences) if text not in printed]
        if len(texts) < len(set(part.licences)):
            texts.append("Its other licences stand above.")
        printed.update(texts)
        pages.append("\n\n".join([f"{rule}\n{part.name} {part.version}\n{rule}", *map(str.strip, texts)]) + "\n\n")
    return "".join(pages)


def bill(wheel: str, version: str, parts: list[Part], moment: int) -> str:
    name = wheel.replace("_", "-")
    main = Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=name,
        purl=PackageURL("pypi", None, name, version),
        licenses=[DisjunctiveLicense(id="Apache-2.0")],
    )
    bom = Bom(serial_number=uuid5(NAMESPACE_URL, f"{name}/{version}/{moment}"))
    bom.metadata.timestamp = datetime.fromtimestamp(moment, tz=timezone.utc)
    bom.metadata.component = main
    found = [
        Component(
            name=part.name,
            version=part.version,
            type=ComponentType.LIBRARY,
            bom_ref=f"{part.kind}/{part.name}/{part.version}",
            purl=PackageURL(part.kind, "debian" if part.kind == "deb" else None, part.name, part.version),
        )
        for part in parts
    ]
    for component in found:
        bom.components.add(component)
    bom.register_dependency(main, found)
    return JsonV1Dot6(bom).output_as_string(indent=1)


def record(files: dict[str, bytes], name: str) -> bytes:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.writerow([path, f"sha256={digest}", len(data)])
    rows.writerow([name, "", ""])
    return text.getvalue().encode()


def main() -> None:
    wheel, out = (Path(word).resolve() for word in sys.argv[1:3])
    distribution, version = wheel.name.split("-")[:2]
    moment = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    read: set[str] = set()
    cuda: dict[Path, Part] = {}
    builds = set()
    for word in sys.argv[3:]:
        folder, _, target = word.partition(":")
        build = Path(folder).resolve()
        read |= files_read(build, [target] if target else [])
        cuda |= cuda_toolkits(build)
        builds.add(build)
    debian, python = debian_owners(read), python_owners(read)
    found = {debian_part(package) for package in set(debian.values()) if not _TOOLCHAIN.match(package)}
    found |= {python_part(distribution) for distribution in set(python.values())} | set(cuda.values())
    if any(name.endswith("/src/data/digits.cpp") for name in read):
        found |= set(digits_parts())
    parts = sorted(found)
    with zipfile.ZipFile(wheel) as archive:
        entries = {info.filename: info for info in archive.infolist()}
        files = {name: archive.read(name) for name in entries}
    info = f"{distribution}-{version}.dist-info"
    del files[f"{info}/RECORD"]
    files[f"{info}/licenses/THIRD_PARTY.txt"] = notices(parts).encode()
    files[f"{info}/sboms/bie.cdx.json"] = bill(distribution, version, parts, moment).encode()
    files = dict(sorted(files.items(), key=lambda item: (item[0].startswith(info), item[0])))
    files[f"{info}/RECORD"] = record(files, f"{info}/RECORD")
    out.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(out / wheel.name, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, time.gmtime(moment)[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = entries[name].external_attr if name in entries else 0o644 << 16
            archive.writestr(entry, data)
    print(f"{wheel.name}: {', '.join(f'{part.name} {part.version}' for part in parts) or 'nothing of others'}")
    if names := ownerless(read - debian.keys() - python.keys(), builds, set(cuda)):
        print(f"The wheel lacks the licences of these files, which no package owns: {', '.join(names)}.")


if __name__ == "__main__":
    main()
