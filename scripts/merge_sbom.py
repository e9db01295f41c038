"""merge_sbom.py FOLDER COMMIT TIME FILE PROGRAM..: merges the lists that cargo-cyclonedx wrote for PROGRAM.. below FOLDER, a copy of
the repository, into one CycloneDX document: the service, its programs, and every package that one of them is built from.

The lists also have packages of features that are off, such as the other databases of sqlx. FOLDER/built.txt, from `cargo tree`, has
those that a build compiles. The same commit gives the same document.
"""

import json
import pathlib
import sys
import uuid

NAME = "instant-payments"


def read_list(folder: pathlib.Path, program: str) -> dict:
    found = list(folder.rglob(f"{program}_bin.cdx.json"))
    if len(found) != 1:
        sys.exit(f"merge_sbom.py: expected one list of {program} in {folder}, found {len(found)}")
    # The copy's path means nothing elsewhere.
    return json.loads(found[0].read_text().replace(f"path+file://{folder}/", "workspace:"))


def read_built(folder: pathlib.Path) -> set[tuple[str, str]]:
    """Name and version of each package, from lines like `tokio v1.54.1`."""
    lines = (line.split() for line in (folder / "built.txt").read_text().splitlines())
    return {(words[0], words[1].removeprefix("v")) for words in lines if words}


def merge(lists: list[dict], built: set[tuple[str, str]], commit: str, time: str) -> dict:
    components: dict[str, dict] = {}
    dependencies: dict[str, set[str]] = {}
    programs = []
    for one in lists:
        for component in one["components"]:
            known = components.get(component["bom-ref"])
            # What one program needs only while it is built may be a part of another.
            if not known or known.get("scope") == "excluded":
                components[component["bom-ref"]] = component
        for dependency in one["dependencies"]:
            dependencies.setdefault(dependency["ref"], set()).update(dependency.get("dependsOn", []))
        programs.append(one["metadata"]["component"])
    for program in programs:
        components[program["bom-ref"]] = program
    components = {ref: one for ref, one in components.items() if (one["name"], one["version"]) in built}
    for component in components.values():
        if component["bom-ref"].startswith("workspace:"):
            # Our crates are not published: a package of the same name in a registry is another one.
            component.pop("purl", None)
    dependencies = {ref: dependencies[ref] & components.keys() for ref in components}
    dependencies[NAME] = {program["bom-ref"] for program in programs}
    metadata = lists[0]["metadata"]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": lists[0]["specVersion"],
        "version": 1,
        "metadata": {
            "timestamp": time,
            "tools": metadata["tools"],
            "component": {
                "type": "application",
                "bom-ref": NAME,
                "name": NAME,
                "version": f"{programs[0]['version']}+{commit}",
                "licenses": programs[0]["licenses"],
            },
            "properties": metadata["properties"],
        },
        "components": [components[ref] for ref in sorted(components)],
        "dependencies": [{"ref": ref, "dependsOn": sorted(dependencies[ref])} for ref in sorted(dependencies)],
    }


def main() -> None:
    folder, commit, time, file, *programs = sys.argv[1:]
    tree = pathlib.Path(folder)
    document = merge([read_list(tree, program) for program in programs], read_built(tree), commit, time)
    document["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(document, sort_keys=True)).urn
    pathlib.Path(file).write_text(json.dumps(document, indent=1) + "\n")
    packages = sum(not component["bom-ref"].startswith("workspace:") for component in document["components"])
    print(f"         {len(programs)} programs, {packages} packages of others")


main()
