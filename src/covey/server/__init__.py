"""HTTP around the engine. `app.py` is the way in; only this package knows status codes."""
