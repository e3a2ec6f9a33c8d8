"""The description of all addresses of a server (OpenAPI 3.1).

It is computed from the declared routes (`routes`) and from the types that handlers decode and
encode. `python -m covey.server.api.openapi` prints it; docs/openapi.json holds its output.
"""

import json
import sys
from functools import cache
from typing import Any

import msgspec

from covey.server.api.routes import (
    CREDENTIAL,
    PILOT_FILE,
    VERSION,
    all_calls,
)
from covey.server.web.route import Media, RouteDescription
from covey.wire import ProblemDocument, as_struct

API_VERSION = "1"  # the one in its addresses
REFERENCE = "#/components/schemas/{name}"
JSON, PROBLEM = "application/json", "application/problem+json"
TEXT = (
    "Every call carries `Authorization: Bearer …`. People show their token. Pilots show the secret "
    "of their site job when they enrol, and afterwards the credential that they got then."
)

Schema = dict[str, Any]

_DIGEST: Schema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_NUMBER: Schema = {"type": "integer", "minimum": -(2**53), "maximum": 2**53}
_FROM_ONE: Schema = {"type": "integer", "minimum": 1, "maximum": 2**53}
_FROM_ZERO: Schema = {"type": "integer", "minimum": 0, "maximum": 2**53}
_SWITCH: Schema = {"type": "string", "enum": ["0", "1"]}

# Parameters in addresses, and behind their question mark.
_PLACES: dict[str, Schema] = {
    "bag": {"anyOf": [_FROM_ONE, {"const": "latest"}]},
    "task": _FROM_ZERO,
    "digest": _DIGEST,
    "token": _FROM_ZERO,
    "pilot": _FROM_ZERO,
    "service": {"type": "string", "minLength": 1},
    "site": {"type": "string", "minLength": 1},
    "job": {"type": "string", "minLength": 1},
    "invitation": {"type": "string", "minLength": 1},
}
_QUERIES: dict[str, tuple[str, Schema]] = {
    "after": ("only rows after this number", _NUMBER),
    "algorithm": ("the broker whose weights are meant; else the server's", {"type": "string"}),
    "attempt": ("the attempt that returns the file, EPOCH.SEQUENCE", {"type": "string"}),
    "brief": (
        "1: rows say only how tasks ended (`row`, `task`, `outcome`, `exit_code`, `signal`, "
        "`host`, `wall_seconds`, `message`, `result`, `files`), and leave out what is 0 or empty, "
        "and the outcome `ok`",
        _SWITCH,
    ),
    "drain": ("1: first wait until the running tasks have ended", _SWITCH),
    "failed": ("1: only failed tasks", _SWITCH),
    "format": (
        "format of the answer; `csv` puts a ' before text that a spreadsheet would take for a "
        "formula, `csv-raw` does not",
        {"type": "string", "enum": ["json", "csv", "csv-raw", "jsonl"]},
    ),
    "limit": ("at most this number of rows", _NUMBER),
    "offset": (
        "leave out this number of rows; for a file, the byte at which this piece begins",
        _FROM_ZERO,
    ),
    "order": (
        "sorted by task number, or in the order of recording",
        {"type": "string", "enum": ["task", "row"]},
    ),
    "pilot": ("number of the pilot that calls", _FROM_ONE),
    "seen": ("answer as soon as the number of ended tasks is not this one", _NUMBER),
    "seen_steps": ("answer as soon as there are more steps than this", _NUMBER),
    "size": ("size of the whole file in bytes", _FROM_ZERO),
    "sort": ("sort by this column; with - in front, largest first", {"type": "string"}),
    "of": ("number of the task; -1: all tasks", _NUMBER),
    "wait": ("wait for news, at most this number of seconds", {**_NUMBER, "type": "number"}),
    "what": ("what should be removed", {"type": "string", "enum": ["logs", "files", "all"]}),
    "where": (
        "comparisons, such as alpha >= 0.5; all must hold",
        {"type": "array", "items": {"type": "string"}},
    ),
}
_NAMES = {"of": "task", "seen_steps": "seen"}  # parameters with the same name as another
_REQUIRED = ("size", "what", "pilot")

_WORDS = {
    400: "the request is not valid",
    401: "the token, secret or credential is missing or wrong",
    403: "the caller may not do this",
    404: "not found",
    405: "this method is not allowed here",
    409: "this is not possible in the present state",
    410: "it does not exist any more",
    413: "the request is too large",
    416: "the file has no such part",
    422: "the digest of a file is wrong or malformed",
    429: "too many: try again after Retry-After seconds",
    503: "not available now: try again after Retry-After seconds",
}
_HEADERS: dict[str, tuple[str, Schema]] = {
    CREDENTIAL: (
        "a new credential, if the present one expires soon",
        {"type": "string"},
    ),
    VERSION: ("version of the server", {"type": "string"}),
    PILOT_FILE: ("the SHA-256 of the server's pilot file", _DIGEST),
    "Retry-After": ("seconds", {"type": "number", "minimum": 0}),
}


@cache
def description() -> dict[str, Any]:
    calls = all_calls()
    schemas = _Schemas([kind for call in calls for kind in (call.takes, call.gives)])
    paths: dict[str, dict[str, Any]] = {}
    for call in calls:
        paths.setdefault(call.path, {})[call.method.lower()] = _operation(call, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "covey", "version": API_VERSION, "description": TEXT},
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {
                who: {"type": "http", "scheme": "bearer"}
                for who in ("token", "secret", "credential")
            },
        },
    }


@cache
def text() -> str:
    return json.dumps(description(), indent=1, ensure_ascii=False) + "\n"


class _Schemas:
    """The schemas of all types in requests and answers, each once."""

    def __init__(self, kinds: list[Any]) -> None:
        self._kinds: list[Any] = [ProblemDocument]
        for kind in kinds:
            if kind is not None and not isinstance(kind, Media) and kind not in self._kinds:
                self._kinds.append(kind)
        types = [_as_object(kind) for kind in self._kinds]
        self._schemas, components = msgspec.json.schema_components(types, ref_template=REFERENCE)
        self.components = {_plain(name): _renamed(each) for name, each in components.items()}

    def content(self, kind: Any) -> dict[str, Any]:
        if kind is None:
            return {}
        if isinstance(kind, Media):
            binary = kind.kind.startswith("application/") and "json" not in kind.kind
            return {kind.kind: {} if binary else {"schema": {"type": "string"}}}
        return {JSON: {"schema": self._schema(kind)}}

    def problem(self) -> dict[str, Any]:
        return {PROBLEM: {"schema": self._schema(ProblemDocument)}}

    def _schema(self, kind: Any) -> Any:
        return _renamed(self._schemas[self._kinds.index(kind)])


def _as_object(kind: Any) -> Any:
    """The type as JSON has it: pilots' messages are tuples here, and objects there."""
    return as_struct(kind) if hasattr(kind, "_field_defaults") else kind


def _operation(call: RouteDescription, schemas: _Schemas) -> dict[str, Any]:
    words = [word.strip("{}.") for word in call.path.split("/")[1:]]
    operation: dict[str, Any] = {
        "operationId": "_".join([call.method.lower(), *words]).replace(".", "_"),
        "summary": call.summary,
        "tags": ["pilots" if call.path.startswith("/pilot/") else "people"],
        "security": [] if call.shown == "nothing" else [{call.shown: []}],
        "parameters": _parameters(call),
        "responses": _responses(call, schemas),
    }
    if call.needs is not None:
        whose = ", for a bag of the caller's owner" if call.needs.own else ""
        operation["description"] = f"Needs the role {call.needs.role.value}{whose}."
    if call.takes is not None:
        content = schemas.content(call.takes)
        operation["requestBody"] = {"required": not call.takes_nothing_too, "content": content}
    return operation


def _parameters(call: RouteDescription) -> list[Schema]:
    parameters = []
    for name, schema in _PLACES.items():
        if f"{{{name}}}" in call.path:
            parameters.append({"name": name, "in": "path", "required": True, "schema": schema})
    for name in call.query:
        words, schema = _QUERIES[name]
        parameters.append(
            {
                "name": _NAMES.get(name, name),
                "in": "query",
                "description": words,
                "required": name in _REQUIRED,
                "schema": schema,
            }
        )
    return parameters


def _responses(call: RouteDescription, schemas: _Schemas) -> dict[str, Any]:
    content = schemas.content(call.gives)
    for media in call.also_gives:
        content |= schemas.content(media)
    responses: dict[str, Any] = {str(call.status): _response("done", content, call.headers)}
    if call.partly:
        responses["206"] = _response("the part in header Range", content, call.headers)
    always = (405, 503) if call.shown == "nothing" else (400, 401, 403, 405, 503)
    for status in sorted({*always, *call.refuses}):
        headers = ("Retry-After",) if status in (429, 503) else ()
        refusal = schemas.problem()
        if status == 410 and call.refuses_with is not None:
            refusal = schemas.content(call.refuses_with)
        elif status == 503 and call.path == "/healthz":
            refusal, headers = content, ()
        responses[str(status)] = _response(_WORDS[status], refusal, headers)
    return responses


def _response(words: str, content: dict[str, Any], headers: tuple[str, ...]) -> dict[str, Any]:
    response: dict[str, Any] = {"description": words, "content": content}
    if headers:
        described = [(name, *_HEADERS[name]) for name in headers]
        response["headers"] = {
            name: {"description": words, "schema": schema} for name, words, schema in described
        }
    return response


def _renamed(schema: Any) -> Any:
    """The schema with names of components that have no dots."""
    if isinstance(schema, dict):
        return {
            name: REFERENCE.format(name=_plain(str(value).removeprefix(REFERENCE[:-6])))
            if name == "$ref"
            else _renamed(value)
            for name, value in schema.items()
        }
    return [_renamed(each) for each in schema] if isinstance(schema, list) else schema


def _plain(name: str) -> str:
    return name.removeprefix("covey.").replace(".", "_")


if __name__ == "__main__":
    sys.stdout.write(text())
