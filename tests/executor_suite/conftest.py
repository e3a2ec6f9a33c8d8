"""joblib's tests bear marks of their own, which a strict pytest is to know."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    for name in ("thread_unsafe", "no_cover"):
        config.addinivalue_line("markers", f"{name}: joblib's")
