"""JSON schema of config files, for editors: completion and errors while typing.

The command line does not validate against it (pydantic does, with better messages); both come from the same
option classes.
"""

from typing import Any

from fedbench.config import KINDS
from fedbench.entries import NAME, BaseEntry, File, Training
from fedbench.options import adapter


def schema() -> dict[str, Any]:
    """JSON schema (draft 2020-12) of a whole config file, with every registered plug-in's keys."""
    definitions: dict[str, Any] = {}
    top = _take(adapter(File).json_schema(), definitions)
    definitions["Training"] = {**_take(adapter(Training).json_schema(), definitions), "required": []}
    definitions["BaseEntry"] = _take(adapter(BaseEntry).json_schema(), definitions)
    overrides = {"$ref": "#/$defs/Training"}
    top["properties"]["training"] = overrides
    top["properties"]["bases"] = _named({"$ref": "#/$defs/BaseEntry"})
    for section, (common, key, registry) in KINDS.items():
        shared = _take(adapter(common).json_schema(), definitions)
        if "training" in shared["properties"]:
            shared["properties"]["training"] = overrides
        variants = []
        for name in registry:
            own = _take(adapter(registry[name].options).json_schema(), definitions)
            variants.append(_joined(shared, own, key, name, registry[name].summary))
        top["properties"][section] = _named({"oneOf": variants})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **top, "$defs": definitions}


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
