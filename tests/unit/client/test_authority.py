"""The file of a certificate authority, as settings name it."""

from pathlib import Path

import pytest

from covey.client.authority import read_authority
from covey.core.errors import BadConfig


def test_without_a_name_there_is_no_authority() -> None:
    assert read_authority("ca", "") == ""


def test_a_file_that_cannot_be_used_is_named_with_its_setting(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    with pytest.raises(BadConfig, match=rf"^serve\.ca {file}: No such file"):
        read_authority("serve.ca", str(file))
    file.write_text("not a certificate")
    with pytest.raises(BadConfig, match=rf"^ca {file} is not a PEM certificate$"):
        read_authority("ca", str(file))
