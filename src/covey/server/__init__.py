"""HTTP around the engine. Requests arrive in `web/app.py`; only this package knows status codes."""
