"""JSON schema of config files, for editors: completion and errors while typing.

The command line does not validate against it (pydantic does, with better messages); both come from the same
option classes.
"""

from typing import Any

from fedbench.config.entries import BaseEntry, File, Training
from fedbench.config.names import NAME
from fedbench.config.reading import FIGURE, KINDS
from fedbench.options import json_schema
from fedbench.registry import FIGURES, Registry


def schema() -> dict[str, Any]:
    """JSON schema (draft 2020-12) of a whole config file, with every registered plug-in's keys."""
    definitions: dict[str, Any] = {}
    top = _take(json_schema(File), definitions)
    definitions["Training"] = {**_take(json_schema(Training), definitions), "required": []}
    definitions["BaseEntry"] = _take(json_schema(BaseEntry), definitions)
    top["properties"]["training"] = {"$ref": "#/$defs/Training"}
    top["properties"]["bases"] = _named({"$ref": "#/$defs/BaseEntry"})
    for section, kind in KINDS.items():
        top["properties"][section] = _named({"oneOf": _variants(*kind, definitions)})
    figures = definitions["Experiment"]["properties"]["figures"]
    figures["items"] = {"oneOf": [{"enum": list(FIGURES)}, *_variants(*FIGURE, definitions)]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **top, "$defs": definitions}


def _variants(common: type, key: str, registry: Registry, definitions: dict[str, Any]) -> list[dict[str, Any]]:
    """What an entry may look like, for each plug-in of a registry."""
    shared = _take(json_schema(common), definitions)
    if "training" in shared["properties"]:
        shared["properties"]["training"] = {"$ref": "#/$defs/Training"}
    found = []
    for name in registry:
        own = _take(json_schema(registry[name].options), definitions)
        found.append(_joined(shared, own, key, name, registry[name].summary))
    return found


def _take(part: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Move a schema's own definitions to the shared ones."""
    definitions.update(part.pop("$defs", {}))
    return part


def _joined(shared: dict[str, Any], own: dict[str, Any], key: str, name: str, summary: str) -> dict[str, Any]:
    """One object that has the keys of its kind and those of one plug-in."""
    return {
        "type": "object",
        "title": name,
        "description": summary,
        "properties": {**shared["properties"], **own.get("properties", {}), key: {"const": name}},
        "required": sorted({key, *shared.get("required", ()), *own.get("required", ())}),
        "additionalProperties": False,
    }


def _named(entry: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": entry, "propertyNames": {"pattern": f"^{NAME}$"}}
