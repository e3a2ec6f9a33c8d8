"""A cluster behind a firewall: a network of its own from which one port of this machine can be
reached and nothing else, and into which only SSH comes.

A server that pilots in there shall find listens on `outside`:`port`. What shall run inside is
started with the words `within` before it. All of this takes root.
"""

import secrets
import subprocess

from tests.testbed.place import PATH, System, free_ports, program

SSH = 22  # in a network of its own nobody else has it
RULES = """
table inet wall {{
  chain coming {{ type filter hook input priority 0; policy drop;
    iif lo accept; ct state established,related accept; tcp dport {ssh} accept; }}
  chain going {{ type filter hook output priority 0; policy drop;
    oif lo accept; ct state established,related accept;
    ip daddr {outside} tcp dport {port} accept;
    tcp flags & (syn|ack) == syn counter reject with tcp reset; }}
  chain passing {{ type filter hook forward priority 0; policy drop; }}
}}
"""
CUT = """
table inet cut {
  chain coming { type filter hook input priority -1; policy accept; iif line0 drop; }
  chain going { type filter hook output priority -1; policy accept; oif line0 drop; }
}
"""


class Wall(System):
    kind = "wall"

    def __init__(self) -> None:
        super().__init__()
        self.name = "cvt" + secrets.token_hex(3)
        net = f"10.231.{secrets.randbelow(256)}.{4 * secrets.randbelow(64)}"
        first, _, last = net.rpartition(".")
        self.outside = f"{first}.{int(last) + 1}"  # this machine, seen from inside
        self.inside = f"{first}.{int(last) + 2}"
        self.port = 0
        # `ip netns exec` would hide the cgroups, without which no node of Slurm starts.
        self.within = ("nsenter", f"--net=/run/netns/{self.name}")

    def launch(self) -> None:
        self.port = free_ports(1)[0]
        name, line = self.name, f"{self.name}h"
        self.place.undo_later("ip", "netns", "del", name)
        self.place.undo_later("ip", "link", "del", line)
        self.place.undo_later("sh", "-c", f"ip netns pids {name} | xargs -r kill -9")
        _run("ip", "netns", "add", name)
        _run("ip", "link", "add", line, "type", "veth", "peer", "name", "line0", "netns", name)
        _run("ip", "addr", "add", f"{self.outside}/30", "dev", line)
        _run("ip", "link", "set", line, "up")
        _run("ip", "-n", name, "link", "set", "lo", "up")
        _run("ip", "-n", name, "addr", "add", f"{self.inside}/30", "dev", "line0")
        _run("ip", "-n", name, "link", "set", "line0", "up")
        self._rule(RULES.format(ssh=SSH, outside=self.outside, port=self.port))

    def is_ready(self) -> bool:
        return True

    def cut(self) -> None:
        """The line: whoever sends waits. (Not the interface: calls would go elsewhere.)"""
        self._rule(CUT)

    def mend(self) -> None:
        self._rule("add table inet cut; delete table inet cut")

    def _rule(self, rules: str) -> None:
        _run(*self.within, program("nft"), "-f", "-", text=rules)

    def reset(self) -> None:
        self.mend()


def _run(*words: str, text: str = "") -> None:
    done = subprocess.run(
        words, input=text, capture_output=True, text=True, timeout=30, env={"PATH": PATH}
    )
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
