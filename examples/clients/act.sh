#!/usr/bin/env bash
# Asks Chimera for something with curl and openssl: signs in, acts at L2, acts at L1 and approves.
#
#   CHIMERA_SERVER=http://127.0.0.1:8080 \
#   SERVICE=n8n_workflow_demo SERVICE_KEY=… PERSON=user_ada PERSON_KEY=… ./act.sh
#
# Signing in and acting, the body alone is signed. Everything else that changes something is signed over
# method, path, query and body, as HTTP message signatures (RFC 9421) are. A signature covers exact bytes. So
# each body is made once, as one string, and that string is both signed and sent; --data-binary keeps curl from
# changing it. On a machine that others use, take another client: openssl gets the key as an argument, which
# they can see.
set -euo pipefail

url=${CHIMERA_SERVER:-http://127.0.0.1:8080}
service=${SERVICE:-n8n_workflow_demo}
person=${PERSON:-user_ada}

# HMAC-SHA256 of the body, in lower-case hex.
sign() { printf '%s' "$2" | openssl dgst -sha256 -mac HMAC -macopt "key:$1" -r | cut -d' ' -f1; }

# The text behind the first member of this name in a JSON document; enough for answers whose shape we know.
member() { grep -o "\"$1\":\"[^\"]*\"" | head -n 1 | cut -d'"' -f4; }

# change PATH ACTOR KEY TOKEN BODY: posts what changes something, under an HTTP message signature.
change() {
    local digest params base made
    digest="sha-256=:$(printf '%s' "$5" | openssl dgst -sha256 -binary | base64):"
    params='("@method" "@path" "@query" "content-digest")'
    params+=";created=$(date +%s);nonce=\"$(openssl rand -hex 16)\";keyid=\"$2\""
    base=$(printf '"@method": POST\n"@path": %s\n"@query": ?\n"content-digest": %s\n"@signature-params": %s' \
        "$1" "$digest" "$params")
    made=$(printf '%s' "$base" | openssl dgst -sha256 -mac HMAC -macopt "key:$3" -binary | base64)
    curl -sS --fail-with-body -H 'Content-Type: application/json' -H "Authorization: Bearer $4" \
        -H "Content-Digest: $digest" -H "Signature-Input: sig=$params" -H "Signature: sig=:$made:" \
        --data-binary "$5" "$url$1"
}

# post PATH KEY TOKEN BODY
post() {
    local headers=(-H 'Content-Type: application/json' -H "X-HMAC-Signature: $(sign "$2" "$4")")
    [ -z "$3" ] || headers+=(-H "Authorization: Bearer $3")
    curl -sS --fail-with-body "${headers[@]}" --data-binary "$4" "$url$1"
}

# sign_in ACTOR KEY: the access token, which is good for an hour.
sign_in() {
    local nonce body
    nonce=$(openssl rand -hex 16)
    body=$(printf '{"actor":"%s","issued_at":%s,"nonce":"%s"}' "$1" "$(date +%s)" "$nonce")
    post /auth/token "$2" "" "$body" | member access_token
}

token=$(sign_in "$service" "$SERVICE_KEY")
text='Chimera lets agents act. Every act is written down. What was done can be undone.'
key=example_$(openssl rand -hex 8)
body='{"steps":[{"tool":"local.summarize","input":{"text":"'$text'"}}],"wait":10,"idempotency_key":"'$key'"}'
echo "L2: $(post /act "$SERVICE_KEY" "$token" "$body")"
# Sent again, the same request does nothing a second time.
again=${body%\}}',"on_duplicate":"return"}'
echo "again: $(post /act "$SERVICE_KEY" "$token" "$again" | member status)"

token=$(sign_in "$person" "$PERSON_KEY")
body='{"steps":[{"tool":"local.summarize","input":{"text":"'$text'"}}],"autonomy_level":"L1_Draft"}'
draft=$(post /act "$PERSON_KEY" "$token" "$body")
run=$(member run_id <<<"$draft")
digest=$(member digest <<<"$draft")
echo "L1: $(member status <<<"$draft") $run"
decision='{"decision":"approve","digest":"'$digest'"}'
echo "approve: $(change "/runs/$run/approve" "$person" "$PERSON_KEY" "$token" "$decision" | member approval_status)"
status=""
while [ "$status" != completed ]; do
    sleep 0.2
    status=$(curl -sS --fail-with-body -H "Authorization: Bearer $token" "$url/runs/$run" | member status)
    case $status in failed | cancelled) exit 1 ;; esac
done
echo "then: $status"
