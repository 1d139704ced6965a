#!/usr/bin/env python3
"""A worker of the queue `thumbnails`. Give it the number of claims to make, or let it run forever.

    CHIMERA_SERVER=http://127.0.0.1:8080 WORKER=thumbnailer WORKER_KEY=… python3 worker.py [CLAIMS]
"""
import itertools, os, pathlib, secrets, socket, sys, threading

sys.path.append(str(pathlib.Path(__file__).parent.parent / "clients"))
from act import Chimera  # signs in and signs requests, with the standard library alone


def thumbnail(call):
    """The work itself. The same idempotency key always writes the same object, so it may be repeated."""
    name = call["idempotency_key"].replace(":", "-")
    return {"url": f"https://pictures.example.com/{name}.png", "width": call["input"]["width"]}


def work(chimera, call):
    lease, done = {"item_id": call["id"], "lease_token": call["lease_token"]}, threading.Event()
    def renew():
        while not done.wait(20):
            chimera.ask("/work/renew", lease)  # its answer says whether the run was cancelled
    threading.Thread(target=renew, daemon=True).start()
    try:
        report = "/work/complete", {**lease, "output": thumbnail(call)}
    except OSError as error:  # it never reached the store of pictures
        report = "/work/fail", {**lease, "message": str(error), "retryable": True, "sent": "no"}
    done.set()
    print(report[0], call["tool"], chimera.ask(*report)["recorded"], flush=True)


for _ in range(int(sys.argv[1])) if len(sys.argv) > 1 else itertools.count():
    chimera = Chimera(os.environ.get("WORKER", "thumbnailer"), os.environ["WORKER_KEY"])
    claim = {"queue": "thumbnails", "wait_seconds": 20, "worker": socket.gethostname(), "claim_id": secrets.token_hex(16)}
    for call in chimera.ask("/work/claim", claim)["items"]:
        work(chimera, call)
