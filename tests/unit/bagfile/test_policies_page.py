"""docs/policies.md is true: its policies can decide, and look only at what there is. So does the
example."""

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.bagfile import Draft, Sheet, parse_sheet, read_draft, read_sheet
from covey.bagfile.format.policy import POLICY
from covey.classad.ads import as_node
from covey.classad.depends import needs
from covey.cli.bags.submission import apply_options
from covey.core.match import blame
from covey.core.match.attributes import REPLICA, TABLE
from covey.core.match.policies import DEFAULTS, NAMES, PRESETS, ROLES, Compiled
from covey.core.protocol.host_history import HALF_LIFE
from covey.core.record.model import PolicySpec, Settings
from covey.core.record.task_needs import MOST_CLASSES
from covey.pilot.host import tags
from covey.python.keywords import read_keywords

PAGE = (Path(__file__).parents[3] / "docs" / "policies.md").read_text("utf-8")
TAGS = {"arch", "cores", "python", *re.findall(r"\b[a-z]+_\w+", tags.__doc__ or "")}
OWN_TAGS = {"genome"}  # which the page lets a task publish
ADS = {role.lower() for role in ROLES}
PARTS = {one.name.lower() for one in REPLICA} | {"name"}  # of an attempt that is live


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def drafted(sheet: Sheet) -> Draft:
    if "script" not in sheet.tree:
        sheet.tree.setdefault("command", "true")
    return read_draft(sheet, {}, lambda text: None)


def from_commands() -> Iterator[Draft]:
    """Of every command line on the page."""
    lines = [*"".join(blocks("sh")).splitlines(), *"".join(blocks("console")).splitlines()]
    for line in lines:
        words = shlex.split(line.removeprefix("$ "), comments=True)
        given = words[4:] if words[:3] == ["covey", "policy", "set"] else []
        given += [words[k + 1] for k, word in enumerate(words) if word == "--policy"]
        if given:
            sheet = Sheet("page")
            apply_options(sheet, {"policy": tuple(given)})
            yield drafted(sheet)


def from_python() -> Iterator[Draft]:
    for node in ast.walk(ast.parse("".join(blocks("python")))):
        if isinstance(node, ast.keyword) and node.arg == "policy":
            yield drafted(read_keywords({"policy": ast.literal_eval(node.value)}))


TABLES = [text for text in blocks("toml") if "policy" in tomllib.loads(text)]
EXAMPLES = Path(__file__).parents[3] / "examples" / "policy"
DRAFTS = [
    drafted(read_sheet(EXAMPLES / "sweep.toml")),
    *(drafted(parse_sheet(text, "policies.md", "/")) for text in TABLES),
    *from_commands(),
    *from_python(),
]


def unknown(path: str, parameters: set[str]) -> bool:
    """Whether nothing is known under this name."""
    role, _, rest = path.lower().partition(".")
    if role not in ADS:
        return path.lower() not in {*TABLE["bag"], *(name.lower() for name in NAMES)}
    role = "bag" if role == "bot" else role
    if role == "job" and re.fullmatch(r"replica\d+\..*", rest):
        inner = rest.partition(".")[2]
        return inner not in PARTS and (
            not inner.startswith(("host.", "pilot.", "site.name")) or unknown(inner, parameters)
        )
    allowed = {"host": TAGS | OWN_TAGS, "job": parameters | {"replicas"}}
    if re.fullmatch(r"replica\d+", rest) and role == "job":
        return False
    return rest not in TABLE[role] and rest not in allowed.get(role, set())


@pytest.mark.parametrize("draft", DRAFTS)
def test_its_policies_can_decide(draft: Draft) -> None:
    policy = Compiled(draft.spec.policy)
    names = {name.lower() for name in draft.names}
    for name in policy.texts:
        paths, _ = needs(as_node(policy.ad[name]), policy.ad)
        assert not [path for path in paths if unknown(path, names)], policy.texts[name]


def test_there_are_policies_of_every_kind() -> None:
    assert len(DRAFTS) > 20
    fields = PolicySpec.__struct_fields__
    said = {name for one in DRAFTS for name in fields if getattr(one.spec.policy, name)}
    assert said >= set(POLICY) - {"avoid_sites", "only_hosts"}
    for name in [*POLICY, *PRESETS]:
        assert f"`{name}`" in PAGE, name
    for name in NAMES:
        assert f"`{name}`" in PAGE, name


def test_every_attribute_that_it_names_is_there() -> None:
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL))
    named = re.findall(rf"\b(?:{'|'.join(ROLES)})\.\w+", " ".join(spans))
    assert len(named) > 30
    assert not [one for one in named if unknown(one, set())]
    parts = {"sites", "replicas", *PARTS, *ADS}
    plain = [span for span in spans if re.fullmatch(r"[A-Z][a-z]\w*", span)]
    strange = [one for one in plain if unknown(one, set()) and one.lower() not in parts]
    assert strange == ["NumberOfReplicas"]  # which is what the page says of it


def test_the_example_is_the_one_of_the_page() -> None:
    shown = [one.spec.policy for one in DRAFTS[1:]]
    assert DRAFTS[0].spec.policy in shown


def test_its_numbers_are_those_of_the_code() -> None:
    settings = Settings()
    assert (blame.SUSPICIOUS, blame.FIRST_REST, blame.UNLIKELY) == (3, 2.0, 1e-4)
    assert (settings.ban_seconds, HALF_LIFE) == (3600.0, 6 * 3600.0)
    assert MOST_CLASSES == 1000
    assert DEFAULTS["MaxReplicas"] == "2"
    assert PRESETS["fast-tail"].policy.max_replicas == "3"
    assert PRESETS["reliable-tail"].policy.max_replicas == "2"
