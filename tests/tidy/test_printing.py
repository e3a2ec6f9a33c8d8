"""Commands print through covey.frontend.terminal only, which cleans what others have written."""

import ast
from pathlib import Path

CLI = Path(__file__).parents[2] / "src" / "covey" / "cli"
ALLOWED = {
    "terminal.py": "the one place",
    "progress.py": "draws the bar, from parts that it cleans",
}
WAYS = {"click.echo", "click.secho", "click.style", "click.echo_via_pager", "click.progressbar"}
WAYS |= {f"sys.{name}.write" for name in ("stdout", "stderr", "__stdout__", "__stderr__")}
WAYS |= {"sys.stdout.buffer", "sys.stderr.buffer", "print", "traceback.print_exception"}


def ways_to_print(source: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute | ast.Name) and ast.unparse(node) in WAYS:
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\x1b" in node.value:
            found.append(f"line {node.lineno}: an escape sequence")
    return found


def test_there_is_one_place_that_prints() -> None:
    found = [
        f"{path.name}, {what}: use covey.frontend.terminal"
        for path in sorted(CLI.rglob("*.py"))
        if path.name not in ALLOWED
        for what in ways_to_print(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n" + "\n".join(found)


def test_other_ways_are_noticed() -> None:
    assert ways_to_print("print(name)\nclick.echo(name)\nsys.stdout.write('\\x1b[2J')")
