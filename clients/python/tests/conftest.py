from collections.abc import Iterator

import pytest
from harness import Relay, Server

# Tokens that the tests make themselves, such as one that has expired, are signed with this.
TOKEN_SECRET = "a-secret-of-this-test-run-and-no-other"


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    started = Server(JWT_ALGORITHM="HS256", JWT_SECRET_KEY=TOKEN_SECRET)
    yield started
    started.stop()


@pytest.fixture
def relay(server: Server) -> Iterator[Relay]:
    started = Relay(server)
    yield started
    started.close()
