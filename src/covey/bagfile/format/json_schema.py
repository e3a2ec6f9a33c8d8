"""The JSON Schema of bag files, made from the table of keys and published as
docs/bagfile.schema.json. Checks that need several keys, or files, cannot be in it: covey makes
them."""

from typing import Any

from covey.bagfile.format.keys import BAG

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    return {
        "$schema": DIALECT,
        "title": "A covey bag file",
        "description": "Tasks that are submitted together: covey run FILE.toml",
        **BAG.schema(),
        "oneOf": [{"required": ["command"]}, {"required": ["script"]}],
    }
