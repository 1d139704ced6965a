"""The five-minute tour of Chimera, in Python.

chimera dev                          # in one terminal
python examples/tour.py [FOLDER]     # in another, with the data folder of the server, which has the keys
"""

import os
import pathlib
import sys

from chimera_client import ChimeraError, Client
from chimera_client.models import StepBody

FOLDER = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".chimera")
SERVER = os.environ.get("CHIMERA_SERVER", "http://127.0.0.1:8080")


def sign_in(actor: str) -> Client:
    """The client signs in when it needs a token, and renews it before it expires."""
    return Client(SERVER, actor, (FOLDER / f"keys/actors/{actor}.key").read_text().strip())


ada, admin, workflow = sign_in("user_ada"), sign_in("admin"), sign_in("n8n_workflow_demo")
summarize: StepBody = {"tool": "local.summarize", "input": {"text": "One is. Two is."}}
upload: StepBody = {"tool": "s3_upload", "input": {"bucket": "notes", "key_template": "hello.txt", "content": "Hello!"}}

# Ada may summarize, but not upload.
try:
    ada.act(steps=[upload])
except ChimeraError as error:
    print(f"refused: {error.code}, {error.detail}")

# At level L0, every step waits for a person. The action may be stated in plain English.
goal = 'Summarize "Chimera lets agents act. It writes everything down."'
asked = ada.act(goal=goal, autonomy_level="L0_Ask", wait=10)
print(f"L0: {asked['status']}, {asked['approvals'][0]['review']['calls'][0]['what']}")

# At level L1, Chimera does a dry run of the whole plan and asks once.
draft = admin.act(steps=[upload], autonomy_level="L1_Draft", wait=10)
print(f"L1: {draft['status']}, would", *[step.get("would_execute") for step in draft["dry_run_results"] or []])

# At level L2, the plan runs and you get its result. At level L3, you only get the run's id.
done = workflow.act(steps=[summarize], wait=10)
print(f"L2: {done['status']}, {done['result']['s1']['summary']}")
silent = admin.act(steps=[summarize])
print(f"L3: {silent['autonomy_level']}, then {admin.runs.wait(silent['run_id'])['status']}")

# Approve the draft, and follow it to its end. The digest says what was reviewed.
decided = admin.runs.approve(draft["run_id"], digest=draft["approvals"][0]["digest"])
print(f"approve: {decided['approval_status']}")
for event in admin.runs.events(draft["run_id"], after=3):
    print(f"  {event['run_seq']}  {event['event_type']}")
print(f"file: {(FOLDER / 'buckets/notes/hello.txt').read_text()}")

# Read the audit log: what happened to that run, and what was refused.
print("audit:", ", ".join(entry["event_type"] for entry in admin.audit.list(subject_id=draft["run_id"])))
for entry in admin.audit.list(event_type="access.refused"):
    print(f"refused: {entry['subject_id']} by {entry['actor_id']}")

# Undo it.
admin.runs.rollback(draft["run_id"])
print(f"undo: {admin.runs.wait(draft['run_id'])['status']}")
