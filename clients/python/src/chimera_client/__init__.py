"""Typed client of Chimera's HTTP API.

`Client` and `AsyncClient` sign in, sign, retry and follow runs. `models` has the types of all documents.
"""

from . import models
from .async_client import AsyncClient
from .client import Client
from .errors import ChimeraError
from .retry import Retry

__all__ = ["AsyncClient", "ChimeraError", "Client", "Retry", "models"]
